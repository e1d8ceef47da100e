"""Stand-in for `java -jar meteor-1.5.jar - - -stdio`: reads one line, answers one line."""
import sys


def score(hyp, ref):
    hw, rw = hyp.split(), ref.split()
    m = len(set(hw) & set(rw))
    if not m:
        return 0.0
    p, r = m / len(set(hw)), m / len(set(rw))
    return 10 * p * r / (r + 9 * p)


def main():
    for line in sys.stdin:
        parts = [x.strip() for x in line.rstrip("\n").split("|||")]
        if parts[0] == "SCORE" and len(parts) == 3 and parts[1] and parts[2]:
            answer = "%.6f" % score(parts[2], parts[1])
        else:
            answer = "Error: specify SCORE or EVAL or SCORE-PREPROC"
        sys.stdout.write(answer + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
