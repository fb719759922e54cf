"""A file with a service is a program with the commands of `segue-service`; and what is written about it holds."""

import ast
import inspect
import json
import re
import subprocess
import sys

import pytest

import segue_service
from conftest import EXAMPLES, ROOT, example
from segue_service import Driver, srv6


def called(name, *arguments):
    """Runs an example as a program."""
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_a_program_lists_its_services_and_their_schemas():
    assert json.loads(called("gentle", "kinds", "-o", "json").stdout) == [
        {"name": "gentle", "about": "Drops inner packets above a length, unless they come rarely."}
    ]
    schema = json.loads(called("gentle", "schema", "gentle").stdout)
    assert schema["additionalProperties"] is False
    assert schema["properties"]["largest"] == {"type": "integer", "default": 1500}
    assert "segue-service" in called("gentle", "--version").stdout


def test_files_are_checked_with_line_key_and_remedy(tmp_path):
    file = tmp_path / "service.yaml"
    for text, expected in [
        ("service: gentle\nconfig: {largest: 100}\n", None),
        ("service: gentle\nconfig:\n  largest: many\n", f'{file}:3:12: config.largest: "many" is of another kind than integer'),
        ("service: gentle\nconfig:\n  fast: 1\n", f'{file}:3:9: config.fast: the key "fast" is not known here; write one of'),
        ("service: rough\n", f'{file}:1:10: service: there is no service "rough"; write one of them: gentle'),
    ]:
        file.write_text(text)
        result = called("gentle", "check", file)
        if expected is None:
            assert (result.returncode, result.stderr) == (0, "")
        else:
            assert result.returncode == 1
            assert expected in result.stderr


def test_wrong_arguments_are_told():
    result = called("gentle", "fly")
    assert result.returncode == 2
    assert "unrecognized subcommand 'fly'" in result.stderr
    result = called("gentle", "list", "--directory", "/nonexistent", "-o", "json")
    assert (result.returncode, result.stdout) == (0, "[]\n")


def blocks():
    """The blocks of Python on the page."""
    page = (ROOT / "docs" / "developing" / "writing-a-service.md").read_text()
    return re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


def test_the_page_runs(monkeypatch):
    names = {"__name__": "page"}
    for block in blocks():
        exec(compile(block, "writing-a-service.md", "exec"), names)
    assert len(blocks()) >= 2


def test_the_page_has_the_example_and_it_is_short():
    text = (EXAMPLES / "gentle.py").read_text()
    (block,) = (block for block in blocks() if "run(Gentle)" in block)
    assert block == text
    lines = [line for line in text.splitlines() if line.strip()]
    assert len(lines) <= 20


def test_every_example_runs_in_the_driver():
    names = sorted(path.stem for path in EXAMPLES.glob("*.py"))
    assert names == ["flows", "gentle", "noop"]
    for name in names:
        driver = Driver(getattr(example(name), name.capitalize()))
        driver.receive([srv6(bytes([0x60]) + bytes(39))])
        assert len(driver.sent()) == 1
        driver.stop()


def public(scope):
    """Names that a class or a module shows."""
    return {name for name in vars(scope) if not name.startswith("_")}


def test_stubs_say_what_is_there():
    from segue_service import _native

    stubs = ast.parse((ROOT / "python" / "package" / "segue_service" / "_native.pyi").read_text())
    said = {node.name: node for node in stubs.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    constants = {node.target.id for node in stubs.body if isinstance(node, ast.AnnAssign)}
    assert set(said) | constants == public(_native)
    for name, node in said.items():
        if isinstance(node, ast.ClassDef):
            functions = {member.name for member in node.body if isinstance(member, ast.FunctionDef)}
            members = functions | {member.target.id for member in node.body if isinstance(member, ast.AnnAssign)}
            assert {member for member in members if not member.startswith("_")} == public(getattr(_native, name)), name
    assert set(segue_service.__all__) <= set(vars(segue_service))


@pytest.mark.parametrize("name", [name for name in segue_service.__all__ if inspect.isclass(getattr(segue_service, name))])
def test_classes_are_of_this_module(name):
    assert getattr(segue_service, name).__module__ == "segue_service"
