"""Splits forum posts with code into word and code tokens."""
import re

FUNC_CALL = re.compile(r"^(?:[A-Za-z0-9]+_?)+\(\)$")
DOTTED = re.compile(r"^[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+$")
NUMBER = re.compile(r"^[+-]?\d+(?:\.\d+)?$")
SPLIT = re.compile(r"[ \n\t]+")


def classify(token):
    if NUMBER.match(token):
        return "<num>"
    if FUNC_CALL.match(token):
        return "<call>"
    if DOTTED.match(token):
        return "<attr>"
    return token.lower()


def lex(text):
    return [classify(t) for t in SPLIT.split(text) if t]
