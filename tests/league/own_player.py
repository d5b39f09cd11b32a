"""A type of player, and a league, that a config names by `import_names`."""

from ding.league import NaiveSpPlayer, OneVsOneLeague
from ding.utils.registry_factory import LEAGUE_REGISTRY, PLAYER_REGISTRY
from tests.league.fakes import SETTINGS


@PLAYER_REGISTRY.register("own_player")
class OwnPlayer(NaiveSpPlayer):
    """Is evaluated against two difficulties."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._eval_opponent_difficulty = ["EASY", "HARD"]

    def mutate(self, info):
        return info["reset_checkpoint_path"]


@LEAGUE_REGISTRY.register("own_league")
class OwnLeague(OneVsOneLeague):
    """Has what became of its players in `mutated`."""

    config = {"league_type": "own_league", "active_players": {"own_player": 1}, "own_player": SETTINGS}

    def __init__(self, cfg):
        self.mutated = []
        super().__init__(cfg)

    def _mutate_player(self, player):
        self.mutated.append(player.mutate({"reset_checkpoint_path": "reset_ckpt.pth"}))
