"""The table of docs/reference/backends.md has a row for each layer, and says what tests said."""

import re

import pytest

from tests.contract import table
from tests.contract.registry import REGISTRY

CASES = """<testsuite>
<testcase classname="tests.contract.test_contract" name="test_a_promise_is_kept[SRU-masks]"/>
<testcase classname="tests.contract.test_contract" name="test_a_promise_is_kept[IRCSRU-masks]"/>
<testcase classname="tests.contract.test_contract" name="test_padding_reaches_no_gradient[SRU]">
<failure/></testcase>
<testcase classname="tests.contract.test_contract" name="test_number_formats[SRU-a-b]"/>
<testcase classname="tests.contract.test_contract" name="test_number_formats[IRCSRU-a-b]">
<skipped/></testcase>
<testcase classname="tests.other" name="test_a_promise_is_kept[TLSTM-masks]"/>
</testsuite>"""


@pytest.fixture
def page():
    return table.PAGE.read_text(encoding="utf-8")


def test_the_page_has_every_layer_and_property(page):
    rows = table.read(page)
    assert rows.keys() == {(layer, t) for layer in REGISTRY for t in table.PROPERTIES}
    assert table.written(page, rows) == page
    legend = re.findall(r"^- \*\*([a-z])\*\*, ([a-z ]+): ", page, re.MULTILINE)
    assert dict(legend) == table.LETTERS


def test_a_file_decides_about_its_backend_alone(page, tmp_path):
    path = tmp_path / "jax64.xml"
    path.write_text(CASES)
    before, after = table.read(page), table.updated(table.read(page), [path])
    with_jax = {place for place, backends in after.items() if "JAX" in backends}
    assert with_jax == {("IRCSRU", "masks"), ("SRU", "number formats")}
    assert all(after[place] - {"JAX"} == before[place] - {"JAX"} for place in before)
