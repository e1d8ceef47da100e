"""What counts as personal data in a support ticket."""
import re

URI = re.compile(r"\bhttps?://\S+\b")
EMAIL = re.compile(r"\b\S+@\S+\.\S+\b")
PHONE = re.compile(r"\+\d{1,3}[ -]\d{2,4}[ -]\d{3,8}\b")
ACCOUNT = re.compile(r"\bAC-\d{8}\b")

RULES = (("uri", URI), ("email", EMAIL), ("phone", PHONE), ("account", ACCOUNT))


def scrub(text: str) -> tuple[str, dict[str, int]]:
    counts = {}
    for label, pattern in RULES:
        text, n = pattern.subn(f"<{label}>", text)
        if n:
            counts[label] = n
    return text, counts
