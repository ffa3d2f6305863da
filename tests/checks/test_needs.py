from wirespeed.checks.registry import facts_suffice, select


def test_families_that_only_read_facts() -> None:
    for words in ("placement", "nodes", "PLACE", "GPU-001", "placement,nodes"):
        assert facts_suffice(select(words)), words


def test_whatever_else_is_selected_needs_a_world() -> None:
    for words in ("correctness", "placement,COL-001", "world", "network", "stragglers"):
        assert not facts_suffice(select(words)), words


def test_no_selection_is_everything() -> None:
    assert not facts_suffice(frozenset())
