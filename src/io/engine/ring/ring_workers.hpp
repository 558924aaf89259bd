//! The kernel's threads that carry out what could not be done at once when a ring was entered.
//!
//! A command of IORING_OP_URING_CMD for which an NVMe driver has no tag left is carried out by such a worker. Where the
//! kernel is built with CONFIG_X86_X32_ABI (Debian's are), it may take a worker for a program with addresses of 32 bits, and
//! use only the lower half of the command's address: a worker begins with a copy of the registers of the thread that started
//! it, and if that one was interrupted in a program then, rather than in a system call, they look like those of an x32
//! program's call (in_compat_syscall, which nvme_to_user_ptr of drivers/nvme/host/ioctl.c asks; seen in 6.12.95). Mostly there
//! is no memory at that address, and the command fails with EFAULT before the device has heard of it. Where there is some, as
//! in programs that are not position-independent (Debian's python3 is one), another's memory is read or written, and it succeeds.
//!
//! The first worker of a thread is started when that enters a ring, so it is sound, unless a signal comes at that moment. More
//! are started in between, too. So threads that send such commands have one. Those that a thread's other rings have started
//! before are not ended by that.
#pragma once

#include <liburing.h>

namespace rawduck {

//! For the calling thread, and for threads that use this ring before any other: each has one worker for work that ends soon, whatever ring that is of.
//! Returns 0 or an errno. To be called by the thread that made the ring, while it has entered none.
int LimitRingWorkers(io_uring &ring);

//! The same for the calling thread, which may have used other rings, before it uses one that others have made; the first call makes a ring for it. Where none
//! can be made, the next call tries again. In a child made by fork() it is done anew.
void LimitRingWorkersOfThisThread();

} // namespace rawduck
