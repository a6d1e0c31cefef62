"""Writes the BUILD files from what the Python files import: one target a file.

    python -m tools.build_files

`tests/test_build_files.py` holds the committed files against what this module generates.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = (
    "benchmarks",
    "configs",
    "docs",
    "examples",
    "keras_trellis",
    "tests",
    "tools",
    "trainers",
)

# Names of distributions, where they are not the name that is imported.
DISTRIBUTIONS = {
    "absl": "absl_py",
    "google": "protobuf",
    "grpc": "grpcio",
    "tcn": "keras_tcn",
    "tensorflow_serving": "tensorflow_serving_api",
    "yaml": "pyyaml",
}
# Imported only where they happen to be installed, so no target may require them.
OPTIONAL = frozenset({"torch"})

_LOADS = {
    "py_binary": "@rules_python//python:py_binary.bzl",
    "py_library": "@rules_python//python:py_library.bzl",
    "pytest_test": "//tools:pytest.bzl",
}


def python_files(root: Path = ROOT) -> list[Path]:
    """Returns the repository's Python files, relative to `root`."""
    paths = [
        *root.glob("*.py"),
        *(path for name in FOLDERS for path in (root / name).rglob("*.py")),
    ]
    return sorted(path.relative_to(root) for path in paths)


def module_name(path: Path) -> str:
    """Returns the dotted name under which a file is imported."""
    return ".".join(path.parent.parts if path.name == "__init__.py" else path.with_suffix("").parts)


def imported_names(source: str) -> Iterator[str]:
    """Yields the dotted names that a source imports, those inside of functions included.

    `import_module(f"configs.{task}")` may import any file of the folder: it yields `configs.*`.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                raise ValueError(f"line {node.lineno}: imports are to be absolute")
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            if isinstance(node.args[0], ast.Constant | ast.JoinedStr):
                start, _, rest = ast.unparse(node.args[0]).strip("f'").partition("{")
                yield f"{start}*" if rest else start


def target_name(path: Path) -> str:
    """Returns the name of a file's target; a package's `__init__.py` bears the package's."""
    return path.parent.name if path.name == "__init__.py" else path.stem


def label(path: Path, package: Path) -> str:
    """Returns the label of a file's target, as written in the BUILD file of `package`."""
    folder = "" if path.parent == package else f"//{path.parent.as_posix()}"
    short = bool(folder) and path.parent.name == target_name(path)
    return folder if short else f"{folder}:{target_name(path)}"


def dependencies(path: Path, files: list[Path], root: Path = ROOT) -> list[Path | str]:
    """Returns what a file imports: first-party files, and names of distributions."""
    modules = {module_name(file): file for file in files}
    tops = {name.partition(".")[0] for name in modules}
    found: set[Path | str] = set()
    for name in imported_names((root / path).read_text(encoding="utf-8")):
        top = name.partition(".")[0]
        if name.endswith(".*"):
            found.update(file for module, file in modules.items() if module.startswith(name[:-1]))
        elif top in tops:
            found.add(_first_party(name, modules))
        elif top not in sys.stdlib_module_names and top not in OPTIONAL:
            found.add(DISTRIBUTIONS.get(top, top))
    return sorted(found - {path}, key=str)


def _first_party(name: str, modules: dict[str, Path]) -> Path:
    """Returns the file of the longest part of a dotted name that is a module."""
    prefix = name
    while prefix not in modules:
        prefix = prefix.rpartition(".")[0]
        if not prefix:
            raise ValueError(f"{name} is imported, and no file defines it")
    return modules[prefix]


def data_files(path: Path, root: Path = ROOT) -> list[str]:
    """Returns the data files beside a file, or in `testdata` there, that its source names.

    A source names all of `testdata` by `testdata/*`.
    """
    source = (root / path).read_text(encoding="utf-8")
    folder = (root / path).parent
    found = [*folder.glob("testdata/*")]
    for suffix in ("css", "html", "js", "tsv"):
        found += folder.glob(f"*.{suffix}")
    names = sorted(file.relative_to(folder).as_posix() for file in found)
    everything = "testdata/*" in source
    return [name for name in names if name in source or (everything and "/" in name)]


def rule(path: Path, root: Path = ROOT) -> str:
    """Returns the rule of a file's target."""
    if path.name.startswith("test_"):
        return "pytest_test"
    is_command = 'if __name__ == "__main__":' in (root / path).read_text(encoding="utf-8")
    return "py_binary" if is_command else "py_library"


def target(path: Path, files: list[Path], root: Path = ROOT) -> str:
    """Returns a file's target."""
    needs = dependencies(path, files, root)
    labels = [
        label(item, path.parent) if isinstance(item, Path) else f"@pypi//{item}" for item in needs
    ]
    kind = rule(path, root)
    lines = [f"{kind}(", f'    name = "{target_name(path)}",']
    if path.parts[0] == "tests" and kind != "pytest_test":
        lines.append("    testonly = True,")
    lines.append(f'    srcs = ["{path.name}"],')
    lines += _attribute("data", sorted(data_files(path, root), key=_buildifier_order))
    lines += _attribute("deps", sorted(labels, key=_buildifier_order))
    return "\n".join([*lines, ")\n"])


def _buildifier_order(name: str) -> tuple[int, list[str]]:
    """Returns what buildifier sorts strings by: their parts between dots and colons."""
    rank = 1 if name.startswith("//") else 2 if name.startswith("@") else 0
    return rank, re.split("[.:]", name)


def _attribute(name: str, values: list[str]) -> list[str]:
    if len(values) < 2:
        return [f'    {name} = ["{value}"],' for value in values]
    return [f"    {name} = [", *(f'        "{value}",' for value in values), "    ],"]


def build_file(folder: Path, files: list[Path], root: Path = ROOT) -> str:
    """Returns the BUILD file of a folder."""
    inside = [path for path in files if path.parent == folder]
    kinds = sorted(
        {rule(path, root) for path in inside}, key=lambda kind: (_LOADS[kind][0] == "/", kind)
    )
    parts = [
        "\n".join(f'load("{_LOADS[kind]}", "{kind}")' for kind in kinds) + "\n",
        'package(default_visibility = ["//visibility:public"])\n',
    ]
    if folder == Path():
        parts.append('exports_files(["pyproject.toml"])\n')
    return "\n".join(parts + [target(path, files, root) for path in inside])


def build_files(root: Path = ROOT) -> dict[Path, str]:
    """Returns the text of every BUILD file, by path."""
    files = python_files(root)
    return {
        folder / "BUILD": build_file(folder, files, root)
        for folder in sorted({path.parent for path in files})
    }


def main() -> None:
    """Writes the BUILD files and removes those of folders without Python files."""
    texts = build_files()
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("BUILD"):
            if path.relative_to(ROOT) not in texts:
                path.unlink()
    for path, text in texts.items():
        (ROOT / path).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
