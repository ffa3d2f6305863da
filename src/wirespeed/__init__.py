"""wirespeed: is my training cluster ready, how close to wire speed is it, which machine is to blame?"""

__all__ = ["__version__"]

__version__ = "0.1.0"
