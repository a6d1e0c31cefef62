"""A release: one version everywhere, and no address where none is set."""

import re
import runpy

import pytest
import setuptools
import yaml

import keras_trellis
from tests import ROOT


@pytest.fixture
def package(monkeypatch):
    """What setup.py hands to setuptools, with a public address or without."""

    def read(url=None):
        given = {}
        monkeypatch.setattr(setuptools, "setup", given.update)
        monkeypatch.delenv("KERAS_TRELLIS_URL", raising=False)
        if url is not None:
            monkeypatch.setenv("KERAS_TRELLIS_URL", url)
        runpy.run_path(str(ROOT / "setup.py"))
        return given

    return read


CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text())


def test_every_file_has_the_version_of_setup(package):
    version = package()["version"]
    assert keras_trellis.__version__ == version
    assert CITATION["version"] == version
    assert f'version = "{version}"' in (ROOT / "MODULE.bazel").read_text()
    kubernetes = (ROOT / "deploy" / "kubernetes.yaml").read_text()
    assert f"image: keras-trellis:{version}\n" in kubernetes
    newest = re.search(
        r"^## \[(.+)\] - (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.M
    )
    assert newest.groups() == (version, CITATION["date-released"])


def test_the_wheel_needs_no_backend_and_each_extra_says_whether_it_brings_tensorflow(
    package,
):
    given = package()
    names = [re.match(r"\w+", each)[0] for each in given["install_requires"]]
    assert names == ["keras", "numpy"]
    extras = given["extras_require"].items()
    bring = {
        name
        for name, lines in extras
        if any(map(re.compile("tensorflow>").match, lines))
    }
    assert bring == {"tensorflow", "trainers", "serving", "benchmarks"}


def test_the_one_system_that_is_tested_is_named(package):
    """.ci/run, which runs the tests, runs on Linux."""
    systems = [
        classifier
        for classifier in package()["classifiers"]
        if classifier.startswith("Operating System")
    ]
    assert systems == ["Operating System :: POSIX :: Linux"]
    assert "Tested on Linux only" in (ROOT / "docs" / "install.md").read_text()


def test_no_address_is_named_where_none_is_set(package):
    given = package()
    assert not {"url", "download_url", "author_email"} & {*given}
    assert given["project_urls"] == {}
    assert given["long_description"] == (ROOT / "README.md").read_text()
    assert not {"url", "repository", "repository-code"} & {*CITATION}


def test_the_links_of_the_description_lead_to_the_address(package):
    url = "https://forge.invalid/trellis"
    given = package(f"{url}/")
    assert given["project_urls"]["Source"] == url
    links = re.findall(r"\]\(([^)]+)\)", given["long_description"])
    assert links and all(link.startswith(("http", "#")) for link in links)
    assert any(link.startswith(f"{url}/blob/v{given['version']}/") for link in links)
