"""A crawl-like corpus: prose with some left-over markup."""
import random

WORDS = ("Lorem ipsum dolor sit amet consectetur adipiscing elit sed do eiusmod tempor incididunt "
         "ut labore et dolore magna aliqua enim ad minim veniam quis nostrud exercitation ullamco "
         "laboris nisi aliquip ex ea commodo consequat duis aute irure in reprehenderit voluptate "
         "velit esse cillum eu fugiat nulla pariatur").split()

MARKUP = [
    '<a href="https://example.org/{n}" rel="nofollow">',
    '<img src="/static/{n}.png" width="640" height="360"/>',
    "<br/>", "<p class='lead'>", "</p>", "</a>",
    '<div id="c{n}" class="post body">', "</div>",
]

EMBED = ('<iframe width="100%" height="166" scrolling="no" frameborder="no" allow="autoplay" '
         "loading=lazy sandbox allowfullscreen referrerpolicy {words}, {rest}")


def sentence(rng):
    words = [rng.choice(WORDS).lower() for _ in range(rng.randint(6, 18))]
    return " ".join(words).capitalize() + rng.choice([".", ".", ".", "!", "?"])


def document(rng, n):
    parts = []
    for _ in range(rng.randint(120, 260)):
        if rng.random() < 0.25:
            parts.append(rng.choice(MARKUP).format(n=n))
        parts.append(sentence(rng))
    if n % 701 == 700:
        at = len(parts) // 2
        parts[at] = EMBED.format(words=" ".join(WORDS[:9]).lower(), rest=sentence(rng))
    return "\n".join(parts)


def read_corpus(count, seed):
    rng = random.Random(seed)
    for n in range(count):
        yield n, document(rng, n)
