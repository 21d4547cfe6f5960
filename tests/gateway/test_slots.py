"""Which slot a conversation goes to."""

from __future__ import annotations

from colibri_cli.chat_formats.base import ChatMessage, Conversation
from colibri_cli.gateway.slots import ConversationKey, SlotChooser, conversation_key
from colibri_cli.gateway.turns import TurnRequest


def key_of(*texts: str, system: str = "", session: str | None = None) -> ConversationKey:
    """Return the key of a conversation whose turns alternate, the user's first."""
    roles = ("user", "assistant")
    messages = [ChatMessage(roles[n % 2], text) for n, text in enumerate(texts)]
    if system:
        messages.insert(0, ChatMessage("system", system))
    conversation = Conversation(tuple(messages))
    return conversation_key(TurnRequest(conversation=conversation, session_key=session))


def pick(
    chooser: SlotChooser,
    key: ConversationKey,
    *free: int,
    engine_chooses: bool = False,
    must_name: bool = False,
) -> int | None:
    return chooser.pick_for(key, engine_chooses=engine_chooses)(free, must_name)


def test_later_turns_have_the_key_of_the_first() -> None:
    first = key_of("hi", system="be kind")
    assert first.is_same(key_of("hi", "hello", "more", system="be kind"))
    assert not first.is_same(key_of("hi", system="be rude"))
    assert not first.is_same(key_of("ho", system="be kind"))
    assert not first.is_same(key_of("hi", system="be kind", session="other"))


def test_a_conversation_without_messages_is_never_a_known_one() -> None:
    plain = conversation_key(TurnRequest(prompt="x"))
    assert not plain.is_same(plain)


def test_one_slot_is_always_slot_zero() -> None:
    chooser = SlotChooser(1)
    assert pick(chooser, key_of("a"), 0, engine_chooses=True) == 0


def test_a_known_conversation_goes_to_its_slot_and_a_new_one_is_left_to_the_engine() -> None:
    chooser = SlotChooser(4)
    chooser.learn(2, key_of("a"))
    assert pick(chooser, key_of("a", "b", "c"), 0, 1, 2, 3, engine_chooses=True) == 2
    assert pick(chooser, key_of("new"), 0, 1, 2, 3, engine_chooses=True) is None


def test_one_is_named_where_the_choice_may_not_be_left_to_the_engine() -> None:
    chooser = SlotChooser(4)
    chooser.learn(2, key_of("a"))
    assert pick(chooser, key_of("new"), 2, 3, engine_chooses=True, must_name=True) == 3


def test_a_busy_slot_is_not_waited_for() -> None:
    chooser = SlotChooser(2)
    chooser.learn(0, key_of("a"))
    assert pick(chooser, key_of("a"), 1, engine_chooses=True) is None
    assert pick(chooser, key_of("a"), 1) == 1


def test_the_last_conversation_of_a_slot_is_the_one_it_holds() -> None:
    chooser = SlotChooser(2)
    chooser.learn(0, key_of("a"))
    chooser.learn(0, key_of("b"))
    assert pick(chooser, key_of("a"), 0, 1, engine_chooses=True) is None


def test_of_two_slots_that_held_it_the_latest_is_taken() -> None:
    chooser = SlotChooser(2)
    chooser.learn(1, key_of("a"))
    chooser.learn(0, key_of("a"))
    assert pick(chooser, key_of("a"), 0, 1) == 0


def test_without_the_engines_help_unused_slots_come_first_then_similar_then_oldest() -> None:
    chooser = SlotChooser(3)
    system = "long instructions"
    assert pick(chooser, key_of("a", system=system), 0, 1, 2) == 0
    chooser.learn(0, key_of("a", system=system))
    assert pick(chooser, key_of("b", system=system), 0, 1, 2) == 1
    chooser.learn(1, key_of("b"))
    chooser.learn(2, key_of("c"))
    assert pick(chooser, key_of("z", system=system), 0, 1, 2) == 0  # shares the system text
    chooser.learn(0, key_of("a", system=system))
    assert pick(chooser, key_of("nothing alike"), 0, 1, 2) == 1


def test_forty_openings_use_every_slot() -> None:
    chooser = SlotChooser(8)
    used = set()
    for number in range(40):
        key = key_of(f"opening {number}")
        slot = pick(chooser, key, *range(8))
        assert slot is not None
        chooser.learn(slot, key)
        used.add(slot)
    assert used == set(range(8))


def test_a_new_engine_holds_nothing() -> None:
    chooser = SlotChooser(2)
    chooser.learn(1, key_of("a"))
    chooser.forget()
    assert pick(chooser, key_of("a"), 0, 1, engine_chooses=True) is None
