"""What the docstrings below a class's fields say: help, schemas and documentation read them."""

import itertools

__all__ = ["field_docs"]


def field_docs(kind: type) -> dict[str, str]:
    """By field, those of its base classes too; none of classes that have no source of ours."""
    import ast  # only where a schema is made
    import inspect
    import textwrap

    found: dict[str, str] = {}
    for one in reversed(getattr(kind, "__orig_bases__", ()) + kind.__mro__):
        if not isinstance(one, type) or one.__module__.partition(".")[0] != "wirespeed":
            continue
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(one)))
        except OSError:
            continue  # it was made by a call
        body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
        found |= {
            field.target.id: inspect.cleandoc(text.value.value).replace("\n", " ")
            for field, text in itertools.pairwise(body)
            if isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
            and isinstance(text.value.value, str)
        }
    return found
