"""Define ModelError, which is raised for every model that cannot be used."""


class ModelError(Exception):
    """A model that is missing, unreadable or unusable here; the message names the model, the reason and the remedy."""


class UnfitDevice(ModelError):
    """A device that cannot run the model (too little memory, no kernels, no bfloat16); another machine's device may."""


class NotDownloaded(ModelError):
    """A model that is not on this machine, and was not downloaded because the hub failed, refused or is offline."""
