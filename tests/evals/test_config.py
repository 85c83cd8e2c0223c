"""Which tasks a data set serves."""

from antiphase.evals.config import GROUPS, expand_groups, tasks_on


def test_every_data_set_has_its_tasks(tmp_path):
    assert tasks_on("cifar10", (), text=True) == ("zero-shot", "probe", "few-shot")
    assert tasks_on("cifar10", (), text=False) == ("probe", "few-shot")
    assert tasks_on("imagenet", (), text=True) == ("zero-shot",)
    assert tasks_on("imagenet-a", (), text=True) == ("zero-shot",)
    assert tasks_on("coco", (), text=True) == ("retrieval",)
    assert tasks_on("coco", ("zero-shot",), text=True) == ("zero-shot",)
    assert tasks_on("mmvp", (), text=True) == ("pairs",)
    assert expand_groups(("ood", "imagenet-a", "cifar10")) == (*GROUPS["ood"], "cifar10")
    assert expand_groups((str(tmp_path),)) == (str(tmp_path),)
