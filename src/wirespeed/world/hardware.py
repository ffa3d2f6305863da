"""Facts of the hardware below the frameworks: GPUs on the bus, paths between devices, driver errors."""

from wirespeed.world.gpudirect import note_gpudirect
from wirespeed.world.iommu import note_peer_paths
from wirespeed.world.kernel_log import note_driver_errors
from wirespeed.world.machine import hides_devices, is_virtual
from wirespeed.world.pci import note_gpus_on_bus
from wirespeed.world.reading import Notes, pci_address

__all__ = ["note_hardware"]


def note_hardware(notes: Notes) -> None:
    """Note `machine.*`, `gpu.on_bus` and, where there are GPUs, what they depend on.

    About 15 µs a PCI device; with GPUs also some ms for the kernel's log. Nothing raises.
    """
    notes.keep("machine.virtual", is_virtual(notes.root), "/proc/cpuinfo and DMI do not tell")
    gpus = note_gpus_on_bus(notes)
    if not gpus:
        return
    notes.facts["machine.hides_devices"] = hides_devices(notes.root)
    note_gpudirect(notes)
    note_peer_paths(notes, [*(gpu.address for gpu in gpus), *_rdma_devices(notes)])
    note_driver_errors(notes)


def _rdma_devices(notes: Notes) -> list[str]:
    """PCI addresses of the RDMA devices; a virtual one (rxe, siw) has none."""
    try:
        devices = list((notes.root / "sys/class/infiniband").iterdir())
    except OSError:
        return []
    return [found for one in devices if (found := pci_address(one / "device")) is not None]
