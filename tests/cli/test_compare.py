"""antiphase compare and report"""


def test_a_damaged_comparison_is_refused(cli, tmp_path):
    (tmp_path / "comparison.json").write_text("{}")
    code, _, err = cli("report", tmp_path)
    assert code == 2
    assert "comparison.json has no entry 'models'" in err
