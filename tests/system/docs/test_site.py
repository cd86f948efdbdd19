"""The documentation site: built without a warning, complete, and of this machine alone."""

import contextlib
import html
import http.server
import re
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from documents import ROOT
from guide_reader import DOCS, PAGES

from yamame import cli
from yamame.algorithms.amago.losses.td import TDLoss
from yamame.recipes import load_recipe, recipe_names

pytestmark = pytest.mark.slow

mkdocs_build = pytest.importorskip("mkdocs.commands.build")
mkdocs_config = pytest.importorskip("mkdocs.config")

_LOADED = re.compile(r"<(?:script|img|iframe|source|link)\b[^>]*?\b(?:src|href)=\"?([^\s\">]+)")
_IN_STYLE = re.compile(r"url\(['\"]?([^)'\"]+)|@import\s+['\"]([^'\"]+)")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built in this process, any warning an error, as `make docs` builds it."""
    directory = tmp_path_factory.mktemp("site")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        patch.setenv("NO_MKDOCS_2_WARNING", "1")
        config = mkdocs_config.load_config(str(ROOT / "mkdocs.yml"), site_dir=str(directory), strict=True)
        config.plugins.on_startup(command="build", dirty=False)
        mkdocs_build.build(config)
    return directory


def text(page: Path) -> str:
    return re.sub(r"<[^>]+>", "", page.read_text(encoding="utf-8"))


def test_every_page_is_there_and_in_the_menu(site: Path) -> None:
    menu = (site / "index.html").read_text(encoding="utf-8")
    for page in PAGES:
        address = page.replace(".md", ".html")
        assert (site / address).exists() and (page == "index.md" or f'href="{address}"' in menu), page


def test_nothing_is_loaded_from_other_hosts(site: Path) -> None:
    """Hyperlinks may leave the site; scripts, styles, images and fonts are its own."""
    loaded = []
    for page in site.glob("*.html"):
        content = page.read_text(encoding="utf-8")
        assert "arithmatex" not in content, "an equation was not drawn"
        loaded += _LOADED.findall(content)
    for style in site.rglob("*.css"):
        loaded += [first or second for first, second in _IN_STYLE.findall(style.read_text(encoding="utf-8"))]
    assert len(loaded) > 100
    assert not [address for address in loaded if re.match(r"(https?:)?//", address)]


def test_the_recipes_page_is_made_of_the_recipes(site: Path) -> None:
    content = text(site / "recipes.html")
    for name in recipe_names():
        about = load_recipe(name).info
        for said in (about.summary, about.command, *about.expected.values()):
            assert said in content.replace("&#39;", "'"), name
    assert "Source: paper section 4 and appendix C.2" in content


def test_the_commands_page_is_made_of_the_commands(site: Path) -> None:
    content = text(site / "command_line.html")
    for command in re.findall(r"^    (\w+) ", cli._parser().format_help(), re.MULTILINE):
        assert f"yamame {command}" in content
    assert "--learner.td.n-step" in content and "--env.horizon int" in content


def test_the_interface_page_has_fields_and_what_they_mean(site: Path) -> None:
    content = (site / "api.html").read_text(encoding="utf-8")
    for name in (
        "yamame.api.train",
        "yamame.run_config.RunConfig.num_envs",
        "yamame.algorithms.amago.losses.base.Loss",
    ):
        assert f'id="{name}"' in content
    assert (TDLoss.__doc__ or "").split(",")[0].split("(")[1] in content


def test_signatures_are_wrapped(site: Path) -> None:
    """For that the site needs a formatter, which its extra installs."""
    content = (site / "api.html").read_text(encoding="utf-8")
    blocks = re.findall(r'<div class="[^"]*doc-signature[^"]*">(.*?)</div>', content, re.DOTALL)
    lines = [html.unescape(re.sub("<[^>]+>", "", block)).strip("\n").split("\n") for block in blocks]
    assert max(len(line) for block in lines for line in block) <= 90
    assert any(block[0] == "train(" and len(block) > 10 for block in lines)
    assert re.search(r'^docs = \[.*"ruff', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)


def test_what_newcomers_read_is_at_the_top_of_the_menu(site: Path) -> None:
    _, _, menu = (site / "index.html").read_text(encoding="utf-8").partition("md-nav--primary")
    pages = [Path(page).stem for page in re.findall(r'href="(?:\./)?(\w+\.html)"', menu)]
    first = list(dict.fromkeys(page for page in pages if page != "index"))[:4]
    assert first == ["installation", "quickstart", "custom_environments", "will_it_learn"]
    assert "Coming from another library" in menu


def test_the_page_about_figures_names_all_of_them() -> None:
    figure_tool = pytest.importorskip("yamame.tools.figure")
    named = re.findall(r"^\| `([\w-]+)` \|", (DOCS / "figures.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(named) == sorted(figure_tool.figure_names())


def test_equations_are_drawn(site: Path) -> None:
    content = (site / "how_it_works.html").read_text(encoding="utf-8")
    drawn = re.findall(r'<svg class="equation" role="img" aria-label="([^"]*)".*?<path d="([^"]*)"', content)
    source = (DOCS / "how_it_works.md").read_text(encoding="utf-8")
    assert len(drawn) == source.count("$$") // 2 + len(re.findall(r"(?<!\$)\$[^$\n]+\$(?!\$)", source))
    assert all(len(outline) > 50 for _, outline in drawn)


def test_an_equation_that_cannot_be_drawn_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs_hooks"))
    import equations  # type: ignore[import-not-found]

    with pytest.raises(ValueError):
        equations.on_page_content(r'<span class="arithmatex">\(\nonsense{x}\)</span>')
    sys.modules.pop("equations")


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@contextlib.contextmanager
def served(site: Path) -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(site))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.browser
@pytest.mark.parametrize("as_files", [False, True])
def test_the_search_finds_in_a_browser_and_requests_nothing_else(site: Path, as_files: bool, tmp_path: Path) -> None:
    pytest.importorskip("selenium")
    from browser import chromium, texts, wait_for
    from selenium.webdriver.common.by import By

    with served(site) as address, chromium(tmp_path) as driver:
        start = f"file://{site}" if as_files else address
        driver.get(f"{start}/index.html")
        driver.find_element(By.CSS_SELECTOR, "input.md-search__input").send_keys("PopArt")
        wait_for(lambda: texts(driver, ".md-search-result__item"), "a search result", seconds=60)
        log = str(driver.get_log("performance")).replace("\\", "")
        requested = set(re.findall(r'"method":"Network.requestWillBeSent".*?"url":"([^"]+)"', log))
        assert requested and all(url.startswith((start, "data:", "blob:", "about:", "chrome")) for url in requested)
