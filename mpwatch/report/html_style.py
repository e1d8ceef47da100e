"""The style sheet of HTML reports: light and dark, no font or picture from outside."""

from __future__ import annotations

STYLE = """
:root { --ink: #1c2330; --faint: #667085; --line: #d9dee7; --paper: #ffffff; --shade: #f5f7fa;
  --critical: #b42318; --warning: #93590a; --info: #175cd3; --curve: #175cd3; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ef; --faint: #98a2b3; --line: #344054;
  --paper: #11151c; --shade: #1a202a; --critical: #ff8a80; --warning: #fdb022; --info: #84adff;
  --curve: #84adff; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 76rem; padding: 1.5rem; color: var(--ink);
  background: var(--paper); font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.4rem; margin: 0; } h2 { font-size: 1.1rem; margin: 2rem 0 .6rem; }
.facts, .note { color: var(--faint); } .facts span { margin-right: 1.2rem; }
article { border: 1px solid var(--line); border-left-width: 5px; border-radius: 6px;
  padding: .8rem 1rem; margin: .6rem 0; }
article.critical { border-left-color: var(--critical); }
article.warning { border-left-color: var(--warning); }
article.info { border-left-color: var(--info); } article.passed { opacity: .7; }
article h3 { margin: 0 0 .3rem; font-size: 1rem; overflow-wrap: anywhere; }
.critical .word { color: var(--critical); } .warning .word { color: var(--warning); }
.info .word { color: var(--info); } .word { text-transform: uppercase; font-weight: 700; }
dl { display: grid; grid-template-columns: 5rem 1fr; gap: .2rem .8rem; margin: 0; }
dt { color: var(--faint); } dd { margin: 0; overflow-wrap: anywhere; }
.wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .25rem .6rem; border-bottom: 1px solid var(--line);
  white-space: nowrap; } th { color: var(--faint); font-weight: 600; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
td.long { white-space: normal; overflow-wrap: anywhere; min-width: 16rem; }
tr.gone td { color: var(--faint); } pre, code { font: 13px/1.45 ui-monospace, monospace; }
pre { background: var(--shade); padding: .7rem 1rem; border-radius: 6px; overflow-x: auto; }
svg { display: block; } svg polyline { fill: none; stroke: var(--curve); stroke-width: 1.5; }
figure { display: inline-block; margin: 0 1.2rem 1rem 0; vertical-align: top; }
figcaption { color: var(--faint); font-size: .85rem; max-width: 300px; }
"""
