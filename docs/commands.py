"""Writes docs/reference/commands.md: what `--help` of each command prints.

python -m docs.commands    # some three minutes: each command imports TensorFlow
"""

import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "commands.md"
SERVER = "keras_trellis.serving"
# The server's is in the wheel; the others run from a clone.
MODULES = (
    *sorted(
        f"trainers.{path.stem}"
        for path in (ROOT / "trainers").glob("*.py")
        if path.stem != "__init__"
    ),
    SERVER,
)
ENVIRONMENT = {"COLUMNS": "80", "TF_CPP_MIN_LOG_LEVEL": "3"}
HEAD = """# Commands

What `--help` of each command prints; `python -m docs.commands` writes this page. The trainers run
from a clone, and `keras-trellis` comes with the wheel. `--config.FIELD=VALUE` of a trainer changes
a field of the preset; the folder `configs` has the fields and their values.
"""


def section(module: str, printed: str) -> str:
    """Returns what the page has of a command whose `--help` prints this."""
    title = "keras-trellis serve" if module == SERVER else f"python -m {module}"
    text = re.sub(r"^(\S*\.py|flags):\n", "", printed, flags=re.MULTILINE)
    text = re.sub(r"\n{3,}", "\n\n", text.partition("\nTry --helpfull")[0]).strip()
    return f"\n## {title}\n\n```text\n{text}\n```\n"


def main() -> None:
    """Asks each command, and writes the page."""
    sections = [HEAD]
    for module in MODULES:
        asked = [sys.executable, "-m", module, "--help"]
        done = subprocess.run(
            asked,
            capture_output=True,
            text=True,
            cwd=ROOT,
            env={**os.environ, **ENVIRONMENT},
        )
        if not done.stdout:
            sys.exit(f"{module} --help prints nothing: {done.stderr[-500:]}")
        sections.append(section(module, done.stdout))
    PAGE.write_text("".join(sections))


if __name__ == "__main__":
    main()
