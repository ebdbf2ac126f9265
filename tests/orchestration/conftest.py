"""The scripted model for every test of orchestration."""

from tests.orchestration.scripted import model_server, scripted_model

__all__ = ["model_server", "scripted_model"]
