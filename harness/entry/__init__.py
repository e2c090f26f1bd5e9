"""Entry points under a name that is this project's alone; see `pytest_plugin` for why."""
