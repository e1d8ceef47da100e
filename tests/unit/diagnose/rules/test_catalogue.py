from __future__ import annotations

from pathlib import Path

import mpwatch.diagnose.rules
from mpwatch.demo.catalogue import scenarios
from mpwatch.describe.error_messages import KNOWN_ERRORS
from mpwatch.diagnose.engine import RULES

FILES = {
    path.stem.replace("_", "-")
    for path in Path(mpwatch.diagnose.rules.__file__).parent.glob("*/[a-z]*.py")
}


def test_every_rule_and_known_error_is_in_the_catalogue_under_its_name() -> None:
    rows = {known.rule for known in KNOWN_ERRORS}

    assert [rule.id for rule in RULES] == sorted(FILES | rows)
    assert not FILES & rows


def test_every_rule_has_a_demonstration_or_a_reason_why_there_is_none() -> None:
    shown = {rule for scenario in scenarios() for rule in scenario.expected}

    assert {rule.id for rule in RULES} <= shown


def test_no_demonstration_expects_an_unknown_rule() -> None:
    said = {rule for scenario in scenarios() for rule in (*scenario.expected, *scenario.also)}

    assert said <= {rule.id for rule in RULES}
