"""The runnable form of a compiled config, under the module path that scripts import it from."""

from ding.config.save import save_config_formatted

__all__ = ["save_config_formatted"]
