"""How a class is put into words. A set of prompts is one or more templates in which {} stands for the class. No torch."""

from __future__ import annotations

from pathlib import Path

from antiphase.config import InputError

SETS = {
    "paper": ("a photo of {}",),  # the paper's text, without an article
    "a": ("a photo of a {}",),
    "digit": ("the digit {}",),
    "imagenet80": (),  # OpenAI's 80 templates for ImageNet, as open_clip has them: importing it takes seconds
}


def check_prompts(name: str) -> None:
    """A known set or an existing file; needs no heavy import, so a typing error is caught at once."""
    if name not in SETS and not Path(name).is_file():
        raise InputError(f"prompts {name!r} are not known: it takes {', '.join(SETS)}, or a text file of templates")


def templates(name: str) -> tuple[str, ...]:
    """The templates of a named set, or the lines of a text file."""
    check_prompts(name)
    if name == "imagenet80":
        from open_clip import OPENAI_IMAGENET_TEMPLATES

        return tuple(template("{}") for template in OPENAI_IMAGENET_TEMPLATES)
    if name in SETS:
        return SETS[name]
    try:
        lines = [line.strip() for line in Path(name).read_text(encoding="utf-8").splitlines()]
    except UnicodeDecodeError:
        raise InputError(f"{name} is not a text file of templates") from None
    found = tuple(filter(None, lines))
    if not found:
        raise InputError(f"{name} holds no template: write one a line, such as 'a photo of a {{}}'")
    for line in found:
        if "{}" not in line:
            raise InputError(f"{name}: the template {line!r} has no {{}} where the class goes")
    return found


def texts(class_name: str, of: tuple[str, ...]) -> list[str]:
    """A class in the words of every template; data sets write "lawn_mower" for what people call a lawn mower."""
    return [template.replace("{}", class_name.replace("_", " ")) for template in of]
