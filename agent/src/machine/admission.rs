//! Whether there is room for one more machine. Pure; nothing is overcommitted: a machine that is let has what it was
//! promised.

use std::fmt;

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    /// Processors.
    pub vcpus: u32,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Disk in bytes.
    pub disk: u64,
}

/// What machines hold.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Holding {
    /// How many they are.
    pub machines: u32,
    /// Their processors.
    pub vcpus: u32,
    /// Their memory in MiB.
    pub memory_mib: u64,
    /// Memory in MiB that they were promised and have not touched so far: the kernel still calls it available.
    pub untouched_mib: u64,
    /// Bytes that they may still write.
    pub unwritten: u64,
}

impl Holding {
    /// Beside a machine of libvirt: its disks are its own. Where nobody knows how much of its memory is `resident`, all
    /// of it may still be touched.
    #[must_use]
    pub fn beside(self, vcpus: u32, memory_mib: u64, resident_mib: Option<u64>) -> Self {
        let promised = memory_mib.saturating_add(OVERHEAD_MIB);
        let untouched = promised.saturating_sub(resident_mib.unwrap_or(0));
        Self {
            vcpus: self.vcpus.saturating_add(vcpus),
            memory_mib: self.memory_mib.saturating_add(promised),
            untouched_mib: self.untouched_mib.saturating_add(untouched),
            ..self
        }
    }
}

/// What there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Processors, without those that are kept for the host.
    pub vcpus: u32,
    /// Memory in MiB, without what is kept for the host.
    pub memory_mib: u64,
    /// Memory in MiB that the kernel calls available now.
    pub memory_available_mib: u64,
    /// Free bytes where disks lie.
    pub disk_free: u64,
    /// Most machines at a time.
    pub machines: u32,
}

/// Too little of something.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct Full {
    /// The parameter that asks for too much.
    pub field: &'static str,
    /// How much there is.
    pub message: String,
}

/// QEMU's own memory beside the guest's, in MiB.
pub const OVERHEAD_MIB: u64 = 384;

/// Says no where something does not suffice.
///
/// # Errors
/// What there is too little of.
pub fn admit(ask: Ask, held: Holding, room: Room) -> Result<(), Full> {
    let no = |field, message: fmt::Arguments<'_>| {
        Err(Full {
            field,
            message: message.to_string(),
        })
    };
    if held.machines >= room.machines {
        return no(
            "vm_id",
            format_args!("{} machines are held, and no more are allowed", held.machines),
        );
    }
    let vcpus = room.vcpus.saturating_sub(held.vcpus);
    if ask.vcpus > vcpus {
        return no(
            "vcpu_count",
            format_args!("{} asked for, {vcpus} free of {}", ask.vcpus, room.vcpus),
        );
    }
    let need = ask.memory_mib.saturating_add(OVERHEAD_MIB);
    let memory = room
        .memory_mib
        .saturating_sub(held.memory_mib)
        .min(room.memory_available_mib.saturating_sub(held.untouched_mib));
    if need > memory {
        let own = OVERHEAD_MIB;
        return no(
            "memory_mib",
            format_args!("{need} MiB asked for ({own} of them QEMU's own), {memory} free"),
        );
    }
    let disk = room.disk_free.saturating_sub(held.unwritten);
    if ask.disk > disk {
        return no(
            "disk_gib",
            format_args!("{} bytes asked for, {disk} free", ask.disk),
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ROOM: Room = Room {
        vcpus: 4,
        memory_mib: 8192,
        memory_available_mib: 7000,
        disk_free: 100,
        machines: 3,
    };

    #[test]
    fn each_bound_is_named_when_it_is_passed() {
        let ask = Ask {
            vcpus: 2,
            memory_mib: 1024,
            disk: 10,
        };
        let none = Holding::default();
        assert_eq!(admit(ask, none, ROOM), Ok(()));
        let field = |ask, held| admit(ask, held, ROOM).unwrap_err().field;
        assert_eq!(field(Ask { vcpus: 999, ..ask }, none), "vcpu_count");
        assert_eq!(field(ask, Holding { vcpus: 3, ..none }), "vcpu_count");
        assert_eq!(
            field(
                Ask {
                    memory_mib: 7000,
                    ..ask
                },
                none
            ),
            "memory_mib"
        );
        assert_eq!(
            field(
                ask,
                Holding {
                    memory_mib: 8000,
                    ..none
                }
            ),
            "memory_mib"
        );
        // What was promised and is not touched yet is available to nobody else.
        assert_eq!(
            field(
                ask,
                Holding {
                    untouched_mib: 6000,
                    ..none
                }
            ),
            "memory_mib"
        );
        assert_eq!(
            field(
                ask,
                Holding {
                    unwritten: 91,
                    ..none
                }
            ),
            "disk_gib"
        );
        assert_eq!(field(ask, Holding { machines: 3, ..none }), "vm_id");
    }

    proptest! {
        #[test]
        fn what_is_admitted_fits_beside_what_is_held(
            vcpus in any::<u32>(), memory_mib in any::<u64>(), disk in any::<u64>(),
            held_vcpus in any::<u32>(), held_memory in any::<u64>(), untouched_mib in any::<u64>(), unwritten in any::<u64>(),
        ) {
            let held = Holding { machines: 0, vcpus: held_vcpus, memory_mib: held_memory, untouched_mib, unwritten };
            if admit(Ask { vcpus, memory_mib, disk }, held, ROOM).is_ok() {
                prop_assert!(u64::from(vcpus) + u64::from(held_vcpus) <= u64::from(ROOM.vcpus));
                prop_assert!(u128::from(memory_mib) + u128::from(held_memory) <= u128::from(ROOM.memory_mib));
                prop_assert!(u128::from(memory_mib) + u128::from(untouched_mib) <= u128::from(ROOM.memory_available_mib));
                prop_assert!(u128::from(disk) + u128::from(unwritten) <= u128::from(ROOM.disk_free));
            }
        }
    }
}
