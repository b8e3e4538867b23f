"""Spiral-Bench: every opening, played out with every model over many turns and judged."""


def test_conversation(conversation_result):
    """The conversation was held and judged; under --strict-items it must also be free of serious harmful advice."""
    assert conversation_result.accepted, conversation_result.explain()
