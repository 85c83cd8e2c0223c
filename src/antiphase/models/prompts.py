"""Prompts for class names: a set of prompts is one or more templates in which {} stands for the class. No torch."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from antiphase.config import InputError, read_text

PROMPT_SETS = {
    "paper": ("a photo of {}",),  # the paper's text, without an article
    "a": ("a photo of a {}",),
    "digit": ("the digit {}",),
    "imagenet80": (),  # OpenAI's 80 templates for ImageNet, as open_clip has them: importing it takes seconds
}


def check_prompts(name: str) -> None:
    """Refuse what is neither a named set nor a file, before any heavy import."""
    if name not in PROMPT_SETS and not Path(name).is_file():
        raise InputError(
            f"prompts {name!r} are not known: it takes {', '.join(PROMPT_SETS)}, or a text file of templates"
        )


def templates(name: str) -> tuple[str, ...]:
    """The templates of a named set, or the lines of a text file."""
    check_prompts(name)
    if name == "imagenet80":
        from open_clip import OPENAI_IMAGENET_TEMPLATES

        return tuple(template("{}") for template in OPENAI_IMAGENET_TEMPLATES)
    if name in PROMPT_SETS:
        return PROMPT_SETS[name]
    lines = [line.strip() for line in read_text(Path(name)).splitlines()]
    read = tuple(filter(None, lines))
    if not read:
        raise InputError(f"{name} holds no template: write one per line, such as 'a photo of a {{}}'")
    return as_templates(read, where=f"{name}: ")


def as_templates(given: str | Iterable[str], where: str = "") -> tuple[str, ...]:
    """Templates as they are given, a string being one of them; what has no place for the class is refused."""
    listed = (given,) if isinstance(given, str) else tuple(given)
    if not listed:
        raise InputError(f"{where}there is no template to put a class into: give one such as 'a photo of a {{}}'")
    for template in listed:
        if "{}" not in template:
            raise InputError(
                f"{where}the template {template!r} has no {{}} where the class goes: write it as in 'a photo of a {{}}'"
            )
    return listed


def fill_templates(class_name: str, templates: str | Iterable[str]) -> list[str]:
    """Every template with the class name put in; underscores become spaces, since data sets write "lawn_mower"."""
    return [template.replace("{}", class_name.replace("_", " ")) for template in as_templates(templates)]
