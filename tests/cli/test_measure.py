"""antiphase measure"""

import json


def test_a_softmax_model_of_one_head_gets_the_measures_that_exist_for_it(cli, tmp_path):
    code, _, err = cli("train", "--out", tmp_path / "one", "--heads", "1", "--epochs", "1", "--json")
    assert code == 0, err
    code, out, err = cli("measure", tmp_path / "one", "--images", "4", "--json")
    assert code == 0, err
    assert "lipschitz" in json.loads(out)
    assert "cancellation" not in json.loads(out)
