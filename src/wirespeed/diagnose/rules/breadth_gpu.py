"""Errors of the CUDA and HIP runtimes by their texts, fabric manager, MPS and vGPU shims.

Texts: cuda_runtime_api's error table (CUDA 13), HIP's names (clr f9f995c), HSA's aborts, NVIDIA's Fabric
Manager guide, HAMi-core 8f3a89c.
"""

from functools import partial

from wirespeed.diagnose.rule import Rule
from wirespeed.diagnose.texts import GONE, rule_of

__all__ = ["RULES"]

_of = partial(
    rule_of,
    starts=r"(?:cuda ?error|cuda failure|cuda driver error|hip ?error|hip failure|cuda_error|cudaerror"
    r"|test cuda failure|cuda call .{0,80}failed|cu\w{4,40} failed).{0,160}?",
    said="RuntimeError: CUDA error: ",
    costs="every later call of this process fails too; the other ranks wait for it",
    explains=(*GONE, "nccl-cuda-error", "cuda-error"),
    links=("https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html",),
)

RULES: tuple[Rule, ...] = (
    _of(
        """
        uncorrectable ECC error encountered
        uncorrectable NVLink error detected
        hardware stack error
        hipErrorECCNotCorrectable
        Contained memory error
        hardware error
        """,
        id="CUDA-201",
        category="gpu-memory-error",
        stage="machine",
        sentence="the GPU's hardware failed: {what}",
        because="the driver reports this of memory, NVLink or the chip, not of the program",
        fix="take the node out, look for its Xid (dmesg -T | grep Xid), reset the GPU or reboot, and "
        "replace it if it comes again",
        next="nvidia-smi -q -d ECC,ROW_REMAPPER; dmesg -T | grep -i xid",
    ),
    _of(
        """
        unspecified launch failure
        an illegal memory access was encountered
        misaligned address
        an illegal instruction was encountered
        invalid program counter
        operation not supported on global/shared address space
        device-side assert triggered
        invalid __global__ * or __shared__
        too many resources requested for launch
        invalid configuration argument
        invalid device function
        invalid resource handle
        context is destroyed
        named symbol not found
        operation not permitted when stream is capturing
        operation failed due to a previous error during capture
        operation would make the legacy stream depend on a capturing
        operation not permitted on an event last recorded in a capturing stream
        the launch timed out and was terminated
        hipErrorIllegalAddress
        hipErrorLaunchFailure
        hipErrorAssert
        hipErrorInvalidConfiguration
        hipErrorStreamCapture
        hipErrorLaunchOutOfResources
        hipErrorLaunchTimeOut
        the operation cannot be performed in the present state
        """,
        id="CUDA-202",
        category="gpu-program-error",
        stage="program",
        sentence="a GPU kernel or call of the program failed: {what}",
        because="calls are asynchronous: the kernel at fault ran before the line that reports it",
        fix="find the kernel with CUDA_LAUNCH_BLOCKING=1 (AMD_SERIALIZE_KERNEL=3), "
        "TORCH_USE_CUDA_DSA=1 "
        "or compute-sanitizer: index out of range, a freed buffer, shapes; on one GPU only: test "
        "that GPU",
        next="CUDA_LAUNCH_BLOCKING=1, on the rank that said so first",
    ),
    _of(
        """
        no kernel image is available for execution
        the provided PTX was compiled with an unsupported toolchain
        device kernel image is invalid
        PTX JIT compiler library not found
        PTX JIT compilation was disabled
        a PTX JIT compilation failed
        CUDA driver version is insufficient for CUDA runtime version
        API call is not supported in the installed CUDA driver
        forward compatibility was attempted on non supported HW
        system has unsupported display driver / cuda driver combination
        CUDA driver is a stub library
        the provided execution affinity is not supported
        hipErrorNoBinaryForGpu
        hipErrorInsufficientDriver
        hipErrorInvalidKernelFile
        hipErrorSharedObjectInitFailed
        hipErrorSharedObjectSymbolNotFound
        invalid kernel file
        """,
        id="CUDA-203",
        category="cuda-mismatch",
        sentence="driver, CUDA and the program's build do not go together: {what}",
        because="the build has no code for this GPU's architecture, or the driver is older than "
        "the CUDA "
        "version that it was built with",
        fix="update the driver, or use a build for this GPU and driver "
        "(python -c 'import torch; print(torch.cuda.get_arch_list())')",
        next="nvidia-smi; python -c 'import torch; print(torch.version.cuda, torch.version.hip)'",
    ),
    _of(
        """
        no CUDA-capable device is detected
        all CUDA-capable devices are busy or unavailable
        invalid device ordinal
        exclusive-thread device already in use
        initialization error
        system not yet initialized
        driver shutting down
        OS call failed or operation not supported on this OS
        shared object initialization failed
        no ROCm-capable device is detected
        hipErrorNoDevice
        hipErrorInvalidDevice
        hipErrorNotInitialized
        unknown error
        setting the device when a process is active is not allowed
        unrecognized error code
        """,
        id="CUDA-204",
        category="gpu-visible",
        sentence="the process cannot use a GPU: {what}",
        because="the driver does not let it start on a device: hidden, in use exclusively, not ready "
        "(fabric manager, a driver that was just updated), or CUDA was used before a fork",
        fix="nvidia-smi must list the GPU in the same container; check CUDA_VISIBLE_DEVICES, "
        "compute mode "
        "(nvidia-smi -c 0), nvidia-fabricmanager, and start workers by spawn",
        next="nvidia-smi; systemctl status nvidia-fabricmanager",
    ),
    _of(
        """
        peer access is not supported between these two devices
        peer mapping resources exhausted
        peer access has not been enabled
        mapping of buffer object failed
        invalid device context
        hipErrorPeerAccess
        hipErrorMapFailed
        """,
        id="CUDA-205",
        category="p2p-unsupported",
        sentence="GPUs of this node cannot reach each other's memory: {what}",
        because="peer access needs NVLink, or PCIe without ACS and IOMMU between the devices, and both "
        "devices in one container",
        fix="NCCL_P2P_DISABLE=1 goes without at the cost of speed; else turn off ACS, and give the "
        "container all GPUs of the node",
        next="nvidia-smi topo -p2p r",
    ),
    _of(
        """
        the hardware resources required to * have been exhausted
        MPS client failed to connect to the MPS
        the remote procedural call between the MPS server
        MPS server is not ready
        MPS client has been terminated
        MPS client and the MPS server
        """,
        id="CUDA-206",
        category="cuda-mps",
        sentence="the CUDA MPS server on this node does not serve this process: {what}",
        because="the pipe folder (CUDA_MPS_PIPE_DIRECTORY) points to a server that is not there, runs "
        "as another user, or was ended by a client's fault",
        fix="unset CUDA_MPS_PIPE_DIRECTORY, or start one server for this user: "
        "echo quit | nvidia-cuda-mps-control; nvidia-cuda-mps-control -d",
        next="echo get_server_list | nvidia-cuda-mps-control",
    ),
    _of(
        """
        out of memory
        hipErrorOutOfMemory
        memory allocation
        """,
        id="CUDA-207",
        category="gpu-oom",
        stage="program",
        sentence="the GPU's memory ran out: {what}",
        because="the model, its activations and the libraries' buffers need more than the device "
        "has free",
        fix="a smaller batch or sequence, activation checkpointing, sharding (FSDP, ZeRO); end other "
        "processes on that GPU",
        next="nvidia-smi --query-compute-apps=pid,used_memory --format=csv",
    ),
    rule_of(
        """
        Memory access fault by GPU node
        HSA_STATUS_ERROR_EXCEPTION
        HSA_STATUS_ERROR_MEMORY_APERTURE_VIOLATION
        HSA_STATUS_ERROR_MEMORY_FAULT
        HSA_STATUS_ERROR_ILLEGAL_INSTRUCTION
        HSA_STATUS_ERROR_INVALID_ISA
        HSA_STATUS_ERROR_OUT_OF_RESOURCES
        HW Exception by GPU node
        GPU Hang
        Unable to find code object for all current devices
        """,
        id="HIP-001",
        category="gpu-program-error",
        stage="program",
        sentence="a kernel on an AMD GPU failed: {what}",
        because="ROCm's runtime ends the process at a fault of a queue: a kernel read or wrote memory "
        "that is not mapped, the code is for another chip, or the device hangs",
        fix="AMD_SERIALIZE_KERNEL=3 AMD_LOG_LEVEL=3 name the kernel; check that the build lists "
        "this chip "
        "(rocminfo | grep gfx); hangs of one device only: dmesg, then reset or replace it",
        next="dmesg -T | grep -i amdgpu",
        links=("https://rocm.docs.amd.com/projects/HIP/en/latest/how-to/debugging.html",),
    ),
    rule_of(
        """
        Unable to open /dev/kfd read-write
        Could not open /dev/kfd
        ROCk module is NOT loaded
        hsa_init Failed
        HSA_STATUS_ERROR: A generic error
        """,
        id="HIP-002",
        category="amd-setup",
        sentence="the process may not use the AMD GPUs of this node: {what}",
        because="/dev/kfd and /dev/dri are missing, or the user is not in the groups render and video",
        fix="docker run --device=/dev/kfd --device=/dev/dri --group-add render --group-add video; load "
        "amdgpu on the host",
        next="ls -l /dev/kfd /dev/dri; id",
        links=("https://rocm.docs.amd.com/projects/install-on-linux/en/latest/how-to/docker.html",),
    ),
    rule_of(
        """
        fabric manager NVIDIA GPU driver interface version * match with driver version
        fabric manager *version mismatch
        failed to initialize NVSwitch
        detected NVSwitch fatal error
        detected number of NVSwitches don't match
        detected number of GPUs don't match
        request to query NVSwitch device information from NVSwitch driver failed
        failed to find any NVSwitch
        NVLink connections training failed
        NVLink training failed
        failed to train NVLink
        failed to configure all the available GPUs or NVSwitches
        not all NVLinks are trained
        failed to open NVSwitch driver
        aborting fabric manager
        NVLSM is not running
        failed to connect to NVLink Subnet Manager
        Starting of nvidia-fabricmanager.service failed
        Failed to start NVIDIA fabric manager service
        nvidia-fabricmanager.service: Failed with result
        nvidia-fabricmanager.service: Main process exited
        nvidia-imex.service: Failed with result
        GPU fabric state: error
        """,
        id="FM-001",
        general=False,
        category="fabric-manager",
        stage="machine",
        confidence="certain",
        sentence="this node's NVSwitch fabric is not up: {what}",
        because="GPUs behind NVSwitches (HGX, DGX) cannot start CUDA until the fabric manager has "
        "configured the switches; its version must be the driver's",
        costs="CUDA fails to start (802, system not yet initialized), or NVLink is not used",
        fix="install nvidia-fabricmanager of exactly the driver's version, restart it, then look for a "
        "switch or link that is broken (nvidia-smi nvlink -s)",
        next="systemctl status nvidia-fabricmanager; nvidia-smi -q | grep -A3 Fabric",
        explains=(*GONE, "gpu-visible", "nccl-cuda-error", "cuda-error", "p2p-failed"),
        links=("https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/",),
    ),
    rule_of(
        """
        Device * OOM * /
        """,
        id="VGPU-001",
        category="gpu-oom",
        stage="program",
        confidence="certain",
        anchors=("HAMI-core", "4pdvGPU", "vgpu"),
        starts=r"\[?(?:HAMI-core|4pdvGPU|vgpu).{0,120}?",
        said="[HAMI-core ERROR (pid:41 thread=7 allocator.c:52)]: ",
        sentence="the share of the GPU's memory that this container was given ran out: {what}",
        because="a vGPU shim (libvgpu.so) refuses what goes over CUDA_DEVICE_MEMORY_LIMIT, though the "
        "device itself may have room",
        fix="request more (nvidia.com/gpumem), or use less; NCCL needs hundreds of MB a communicator",
        next="env | grep CUDA_DEVICE",
        explains=(*GONE, "cuda-error", "nccl-cuda-error"),
        links=("https://github.com/Project-HAMi/HAMi-core",),
    ),
    rule_of(
        """
        shrreg
        unified_lock
        Hijack failed
        Cannot acquire lock after
        Postinit lock timeout
        postinit semaphore
        Illegal device id
        Limit inconsistency detected
        Limit overflow
        HOST PID NOT FOUND
        host pid is error
        NVML get * error
        cuInit failed
        real dlsym not found
        The current version number
        allocator_init: malloc failed
        Register exit handler failed
        cuMemoryAllocate failed
        Device2GetComputeRunningProcesses failed
        cuMemPoolGetAttribute failed
        cuDeviceGetMemPool failed
        cuCtxSetCurrent* failed
        Delete /tmp/cudevshr.cache
        Fail to *
        Failed to lock
        cuCtxGet* res=
        cuCtxGet* err=
        """,
        id="VGPU-002",
        category="vgpu-shim",
        stage="setup",
        anchors=("HAMI-core", "4pdvGPU", "vgpu"),
        starts=r"\[?(?:HAMI-core|4pdvGPU|vgpu)\W*(?:ERROR).{0,120}?",
        said="[HAMI-core ERROR (pid:41 thread=7 mem.c:52)]: ",
        sentence="the vGPU shim in this container fails: {what}",
        because="libvgpu.so is preloaded to share the GPU and keeps its state in a file that all "
        "processes of the container lock; a killed process, or another version, leaves it unusable",
        fix="delete its cache (CUDA_DEVICE_MEMORY_SHARED_CACHE, /tmp/cudevshr.cache) and start "
        "again; for "
        "jobs of several GPUs take whole GPUs, without the shim",
        next="env | grep -E 'LD_PRELOAD|CUDA_DEVICE'; cat /etc/ld.so.preload",
        links=("https://github.com/Project-HAMi/HAMi-core",),
    ),
    rule_of(
        """
        Failed to acquire license
        license request failed
        vGPU * unlicensed
        Valid GRID license not found
        Unlicensed state
        """,
        id="VGPU-003",
        category="vgpu-license",
        starts=r"(?:nvidia-gridd|vgpu|grid|nvidia).{0,120}?",
        said="nvidia-gridd[41]: NVIDIA vGPU: ",
        sentence="this virtual GPU has no licence: {what}",
        because="an NVIDIA vGPU without a licence is slowed down, and CUDA stops after some time",
        fix="set the licence server's token in /etc/nvidia/ClientConfigToken and restart nvidia-gridd",
        next="nvidia-smi -q | grep -i licen",
        links=("https://docs.nvidia.com/vgpu/latest/grid-licensing-user-guide/",),
    ),
    rule_of(
        """
        hipError*
        """,
        id="HIP-003",
        category="gpu-program-error",
        role="symptom",
        stage="program",
        starts=r"(?:HIP error|HIP failure|Hip failure).{0,80}?",
        said="RuntimeError: HIP error: ",
        sentence="a call of the HIP runtime failed: {what}",
        checks=(
            "the first such line of all ranks: later ones follow from it",
            "AMD_SERIALIZE_KERNEL=3 AMD_LOG_LEVEL=3, which name the kernel or call at fault",
            "whether driver, image and framework are of one ROCm version (rocminfo; torch.version.hip)",
        ),
    ),
)
