"""A report as one HTML file that needs nothing else: no script, no link, pictures inside."""

from base64 import b64encode
from collections.abc import Iterator
from html import escape
from pathlib import Path

from yamame.run.account import ReportData, Row, Section

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""What a browser may do with the page: nothing but show it, whatever it holds."""
STYLE = """
:root { color-scheme: light dark; --ink: #1d2329; --soft: #5b6670; --line: #dfe4e8; --page: #fff; --card: #f5f7f9; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e8eb; --soft: #9aa5ae; --line: #353d44; --page: #14181b; --card: #1e2428; }
  img { filter: invert(0.92) hue-rotate(180deg); }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 60rem; padding: 1.5rem clamp(0.8rem, 4vw, 2rem) 3rem; color: var(--ink);
  background: var(--page); font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0; }
h2 { font-size: 1.1rem; margin: 2.2rem 0 0.6rem; }
p { margin: 0.3rem 0 1rem; color: var(--soft); }
.pictures { display: grid; gap: 1rem; margin: 2rem 0 0; max-width: 46rem; }
figure { margin: 0; border: 1px solid var(--line); border-radius: 8px; overflow-x: auto; }
img { display: block; width: 100%; min-width: 30rem; height: auto; }
table { width: 100%; border-collapse: collapse; font-size: 0.95rem; }
th, td { padding: 0.35rem 0.6rem 0.35rem 0; border-bottom: 1px solid var(--line); text-align: left;
  vertical-align: top; font-weight: normal; }
th { width: 45%; color: var(--soft); }
.note { color: var(--soft); white-space: normal; }
strong { font-size: 1.15em; }
code, pre { font: 0.88em/1.5 ui-monospace, monospace; }
pre { background: var(--card); border-radius: 8px; padding: 0.8rem 1rem; overflow-x: auto; white-space: pre-wrap; }
details > summary { cursor: pointer; font-size: 1.1rem; font-weight: 600; margin: 2.2rem 0 0.6rem; }
"""
FOLDED = 24
"""Facts beyond which a section is folded up."""


def render_html(account: ReportData, directory: Path) -> str:
    """The whole page; pictures are read from the run's directory, and left out where they are not there."""
    return "\n".join(_page(account, directory)) + "\n"


def _page(account: ReportData, directory: Path) -> Iterator[str]:
    yield "<!doctype html>"
    yield f'<html lang="en"><head><meta charset="utf-8"><title>{escape(account.title)}</title>'
    yield f'<meta http-equiv="Content-Security-Policy" content="{escape(POLICY)}">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<style>{STYLE}</style></head><body>"
    yield f"<h1>{escape(account.title)}</h1>"
    if account.expected:
        yield f"<p>Expected: {escape(account.expected)}</p>"
    yield f"<section><h2>{escape(account.results.title)}</h2>{''.join(_table(account.results))}</section>"
    yield '<div class="pictures">'
    for file, shown in account.pictures.items():
        if (directory / file).is_file():
            inside = b64encode((directory / file).read_bytes()).decode()
            yield f'<figure><img alt="{escape(shown)}" src="data:image/png;base64,{inside}"></figure>'
    yield "</div>"
    for section in account.sections:
        yield from _section(section)
    yield f"<section><h2>Go on</h2><pre>{escape(chr(10).join(account.commands))}</pre></section>"
    yield "</body></html>"


def _section(section: Section) -> Iterator[str]:
    title = escape(section.title)
    folded = len(section.facts) > FOLDED
    yield f"<details><summary>{title}</summary>" if folded else f"<section><h2>{title}</h2>"
    if section.intro:
        yield f"<p>{escape(section.intro.replace('`', ''))}</p>"
    yield from _table(section)
    yield "</details>" if folded else "</section>"


def _table(section: Section) -> Iterator[str]:
    yield "<table><tbody>"
    for fact in section.facts:
        yield f'<tr><th scope="row">{_text(fact.name, section)}</th><td>{_value(fact, section)}</td></tr>'
    yield "</tbody></table>"


def _value(fact: Row, section: Section) -> str:
    value = _text(fact.value, section)
    value = f"<strong>{value}</strong>" if fact.strong else value
    return f'{value} <span class="note">({escape(fact.note)})</span>' if fact.note else value


def _text(text: str, section: Section) -> str:
    return f"<code>{escape(text)}</code>" if section.is_code else escape(text)
