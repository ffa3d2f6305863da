"""What `images/build cpu` and `images/build cuda` make."""

__all__ = ["CPU_IMAGE", "GPU_IMAGE"]

CPU_IMAGE, GPU_IMAGE = "localhost/wirespeed:cpu", "localhost/wirespeed:cuda"
