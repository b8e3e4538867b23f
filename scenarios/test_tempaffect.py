"""TempAffect 1: every scenario, asked of every model in both prompting modes."""


def test_scenario(scenario_result):
    """The answer was measured; under --strict-items it must also be useful and bounded."""
    assert scenario_result.accepted, scenario_result.explain()
