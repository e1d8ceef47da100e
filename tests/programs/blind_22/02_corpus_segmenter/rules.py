"""Cleaning and sentence-boundary rules."""
import re

NEWLINE_RULE = (re.compile(r"\s*\n\s*"), " ")
HTML_TAG_RULE = (re.compile(r"</?\w+(?:\s*[\w-]+(?:\s*=\s*(?:\"[^\"]*\"|'[^']*'|[^\s\"'>]+))?)*\s*/?>"), "")
ENTITY_RULE = (re.compile(r"&(?:nbsp|amp|quot|lt|gt);"), " ")
SPACES_RULE = (re.compile(r"[ \t]{2,}"), " ")

CLEANING = [NEWLINE_RULE, HTML_TAG_RULE, ENTITY_RULE, SPACES_RULE]

ABBREVIATIONS = {"dr", "mr", "mrs", "prof", "fig", "eq", "al", "e.g", "i.e", "vs"}
BOUNDARY = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"'])")


def clean(text):
    for pattern, replacement in CLEANING:
        text = pattern.sub(replacement, text)
    return text.strip()


def split_sentences(text):
    out = []
    for piece in BOUNDARY.split(text):
        last = out[-1].rstrip(".").rsplit(" ", 1)[-1].lower() if out else ""
        if last in ABBREVIATIONS:
            out[-1] = out[-1] + " " + piece
        else:
            out.append(piece)
    return out
