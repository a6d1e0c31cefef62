"""Writes the dependencies of the rules in BUILD files, by the imports: python -m tools.build_files.

All else is written by hand, and so is a dependency before `# keep`, which no import shows.
"""

import ast
import itertools
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = "benchmarks configs docs examples keras_trellis tests tools trainers".split()
LOCK = (ROOT / "requirements_lock.txt").read_text("utf-8").lower().replace("-", "_")
# Packages by what is imported of them.
PACKAGES = {name: name for name in re.findall(r"^(\w+)==", LOCK, re.M)}
PACKAGES |= {"absl": "absl_py", "google": "protobuf", "grpc": "grpcio"}
PACKAGES |= {"sklearn": "scikit_learn", "tcn": "keras_tcn", "yaml": "pyyaml"}
PACKAGES |= {"tensorflow_serving": "tensorflow_serving_api"}
ADDED = {"//tests", "//tools", "@pypi//pytest"}  # by the macro pytest_folder
RULE = re.compile(r"^(py_\w+|pytest_folder)\(\n(.*?)^\)", re.M | re.S)


def sources(folder: Path, rule: str) -> Iterator[Path]:
    """Yields the Python files of a rule; a subfolder with a BUILD file has its own."""
    listed = re.search(r"srcs = (?:glob\(\s*)?\[(.*?)\]", rule, re.S)
    apart = re.findall(r'exclude = \["(.+)"\]', rule)
    for pattern in re.findall('"(.+?)"', listed[1]) if listed else ["**/*.py"]:
        for path in folder.glob(pattern):
            package = next(up for up in path.parents if (up / "BUILD").exists())
            if package == folder and path.name not in apart:
                yield path


def label(folder: Path, rule: str) -> str:
    """Returns the name of a rule."""
    name = re.findall('name = "(.+)"', rule)[0]
    return f"//{folder.relative_to(ROOT)}" + f":{name}" * (name != folder.name)


def imported(node: ast.AST) -> Iterator[str]:
    """Yields the dotted names that a source imports as it runs."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield from (f"{node.module}.{alias.name}" for alias in node.names)
    elif not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
        for child in ast.iter_child_nodes(node):
            yield from imported(child)


def written() -> dict[Path, str]:
    """Returns what the BUILD files should hold."""
    paths = [path for folder in FOLDERS for path in (ROOT / folder).rglob("BUILD")]
    texts = {path: path.read_text("utf-8") for path in paths}
    rules = [(path, *rule) for path in paths for rule in RULE.findall(texts[path])]
    owners = {name: f"@pypi//{package}" for name, package in PACKAGES.items()}
    for path, _, rule in rules:
        for source in sources(path.parent, rule):
            module = ".".join(source.relative_to(ROOT).with_suffix("").parts)
            owners[module.removesuffix(".__init__")] = label(path.parent, rule)
    for path, kind, rule in rules:
        labels = dict.fromkeys(re.findall('"(.+)",  # keep', rule), "  # keep")
        for source in sources(path.parent, rule):
            for name in imported(ast.parse(source.read_text("utf-8"))):
                parts = itertools.accumulate(name.split("."), "{}.{}".format)
                for owner in [owners[part] for part in parts if part in owners][-1:]:
                    labels.setdefault(owner, "")
        apart = {label(path.parent, rule), *(ADDED if kind == "pytest_folder" else ())}
        ordered = sorted(labels.keys() - apart, key=lambda each: each.replace(":", "!"))
        lines = [f'        "{each}",{labels[each]}\n' for each in ordered]
        deps = f"    deps = [\n{''.join(lines)}    ],\n" if lines else ""
        other = re.sub(r"^    deps = \[.*?\],\n", "", rule, flags=re.M | re.S)
        texts[path] = texts[path].replace(rule, other + deps)
    return texts


if __name__ == "__main__":
    for path, text in written().items():
        path.write_text(text, "utf-8")
