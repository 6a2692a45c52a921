//! The node agent of VirtEngine HPC.
