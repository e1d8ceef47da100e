"""A workflow is a directed graph of nodes, given as a list of specs with their parents."""


def subject_workflow(subjects, sessions):
    specs = []

    def add(name, interface, parents, seconds):
        specs.append({"name": name, "interface": interface, "parents": parents,
                      "seconds": seconds, "seed": len(specs)})
        return name

    for session in range(sessions):
        gate = [f"merge_{session - 1}"] if session else []
        smoothed = []
        for s in range(subjects):
            a = add(f"realign_{session}_{s}", "realign", gate, 1.5 + 0.7 * s)
            smoothed.append(add(f"smooth_{session}_{s}", "smooth", [a], 2.0 - 0.5 * s))
        add(f"infosource_{session}", "identity", smoothed, 0)
        add(f"merge_{session}", "smooth", [f"infosource_{session}"], 0.6)
    return specs
