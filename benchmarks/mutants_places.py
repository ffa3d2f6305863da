"""What a mutant may change: no docstring, annotation, decorator, pattern, or text for people."""

import ast
import builtins
import re
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass
from itertools import accumulate

_SWAPS = (
    "Eq NotEq Lt LtE Gt GtE Is IsNot In NotIn And Or Add Sub Mult Div FloorDiv Mod BitOr BitAnd"
)
_NAMES = _SWAPS.split()
_PAIRS = list(zip(_NAMES[::2], _NAMES[1::2], strict=True))
_OPERATORS: dict[type[ast.AST], type[ast.AST]] = {
    getattr(ast, one): getattr(ast, other) for a, b in _PAIRS for one, other in ((a, b), (b, a))
}
_WORD = re.compile(r"[\w.:/=-]+")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_LOGS = {"log", "_log", "logger", "logging", "warnings", "print"}


@dataclass(frozen=True)
class Mutant:
    """`new` in place of `old`, which stands at `start` (characters from the file's begin) on `line`."""

    path: str
    line: int
    start: int
    old: str
    new: str
    statement: bool
    """A statement, not an expression."""
    imported: bool
    """Runs when the module is imported, not in a function."""

    @property
    def key(self) -> str:
        old, new = (" ".join(text.split()) for text in (self.old, self.new))
        return f"{self.path}:{self.line}: {old} → {new}"


def applied(text: str, mutant: Mutant) -> str:
    end = mutant.start + len(mutant.old)
    return text[: mutant.start] + mutant.new + text[end:]


def probed(text: str, places: list[tuple[int, Mutant]]) -> str:
    """The same program, which tells `_hit` of each place it comes by; of a place that an import runs,
    at each call of a function of the file."""
    marks: list[tuple[tuple[int, int, int, int], str]] = []
    offset = _offsets(text)
    for key, one in places:
        hit, end = f"getattr(__import__('builtins'), '_hit', bool)({key})", one.start + len(one.old)
        if one.imported:
            for function in ast.walk(ast.parse(text)):
                if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                    body = [node for node in function.body if not _is_text(node)]
                    if (
                        body
                        and body[0].lineno > function.lineno
                        and not hasattr(body[0], "decorator_list")
                    ):
                        margin = "\n" + " " * body[0].col_offset
                        at = offset(body[0].lineno, body[0].col_offset)
                        marks.append(((at, 1, -len(text), key), hit + margin))
        elif one.statement:
            marks.append(((one.start, 1, -len(text), key), hit + "; "))
        else:
            marks.append(((one.start, 1, -end, key), f"({hit}, ("))
            marks.append(((end, 0, -one.start, -key), "))[1]"))
    for (at, *_), mark in sorted(marks, reverse=True):
        text = text[:at] + mark + text[at:]
    return text


def candidates(path: str, text: str) -> Iterator[Mutant]:
    """Every change that may be made in a file; a few do not compile (`sound`)."""
    offset = _offsets(text)
    for node, changes, imported in _places(ast.parse(text), True):
        start = offset(node.lineno, node.col_offset)
        old = text[start : offset(node.end_lineno or 0, node.end_col_offset or 0)]
        statement = isinstance(node, ast.Break | ast.Continue)
        for new in changes:
            whole = statement or new == "pass"
            yield Mutant(
                path, node.lineno, start, old, new if whole else f"({new})", statement, imported
            )


def sound(text: str, mutant: Mutant) -> bool:
    """It compiles, to another program."""
    try:
        return ast.dump(ast.parse(applied(text, mutant))) != ast.dump(ast.parse(text))
    except SyntaxError:
        return False


def _places(node: ast.AST, imported: bool) -> Iterator[tuple[ast.expr | ast.stmt, list[str], bool]]:
    if _left_alone(node):
        return
    for place, changes in _changes(node):
        yield place, changes, imported
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "pattern", "keywords") and (
            name != "keywords" or isinstance(node, ast.ClassDef)
        ):
            continue
        inner = imported and not (name == "body" and isinstance(node, _FUNCTIONS))
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _places(child, inner)


def _left_alone(node: ast.AST) -> bool:
    """Texts, types, logs, what only type checkers read; `raise`, whose words are for people."""
    match node:
        case ast.JoinedStr() | ast.Raise() | ast.Import() | ast.ImportFrom():
            return True
        case ast.If(test=ast.Name("TYPE_CHECKING")):
            return True
        case ast.Assign(targets=[ast.Name(name)]):
            return name.startswith("__")
        case ast.Subscript(value=ast.Name(name)):
            return name[0].isupper() or name in dir(builtins)
        case ast.Call(func=ast.Name(name) | ast.Attribute(value=ast.Name(name))):
            return name in _LOGS or name in ("TypeVar", "NewType", "cast")
    return _is_text(node)


def _changes(node: ast.AST) -> Iterator[tuple[ast.expr | ast.stmt, list[str]]]:
    """(what stands there, what may stand there instead)."""
    match node:
        case ast.Compare(ops=[operator]):
            yield node, [_with(node, ops=[_OPERATORS[type(operator)]()])]
        case ast.BoolOp() | ast.BinOp() if type(node.op) in _OPERATORS and not _typing(node):
            yield node, [_with(node, op=_OPERATORS[type(node.op)]())]
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            yield node, [ast.unparse(node.operand)]
        case ast.Constant(value):
            yield node, _constants(value)
        case ast.Call(args=[*_, ast.Name(first), ast.Name(second)]):
            if first != second and first.islower() and second.islower():
                yield node, [_with(node, args=[*node.args[:-2], node.args[-1], node.args[-2]])]
    yield from _statements(node)


def _constants(value: object) -> list[str]:
    match value:
        case bool():
            return [str(not value)]
        case int() | float():
            return [repr(value + 1), repr(value - 1)]
        case str() if _WORD.fullmatch(value):
            return ['""']
    return []


def _statements(node: ast.AST) -> Iterator[tuple[ast.expr | ast.stmt, list[str]]]:
    match node:
        case ast.Return(ast.expr() as value) if ast.unparse(value) != "None":
            words = ast.unparse(value)
            truth = isinstance(value, ast.Compare | ast.BoolOp) or words in ("True", "False")
            yield value, [f"not ({words})" if truth else "None"]
        case ast.If() | ast.While() | ast.IfExp():
            yield node.test, [f"not ({ast.unparse(node.test)})"]
        case ast.Break() | ast.Continue():
            yield node, ["continue" if isinstance(node, ast.Break) else "break"]
        case ast.Expr(ast.Call() as call) if not _left_alone(call):
            yield call, ["pass"]


def _with(node: ast.expr, **fields: object) -> str:
    changed = copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return ast.unparse(changed)


def _typing(node: ast.expr) -> bool:
    """A part of a type, or a text: `|` and `+` of those mean something else."""
    match node:
        case ast.JoinedStr() | ast.Constant(str() | None):
            return True
        case ast.Name(name) | ast.Subscript(value=ast.Name(name)):
            return name[0].isupper() or name in dir(builtins)
        case ast.BinOp(left, _, right):
            return _typing(left) or _typing(right)
    return False


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _offsets(text: str) -> Callable[[int, int], int]:
    """(line, column in bytes), as syntax trees have them, to characters from the begin."""
    lines = text.splitlines(keepends=True)
    begins = [0, *accumulate(map(len, lines))]
    return lambda line, column: begins[line - 1] + len(lines[line - 1].encode()[:column].decode())
