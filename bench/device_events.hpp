//! What happens while commands are carried out: system calls of the thread that makes this, and interrupts of NVMe
//! controllers, whoever drives them. For root, with tracefs mounted.
#pragma once

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <linux/perf_event.h>
#include <sstream>
#include <stdexcept>
#include <string>
#include <sys/syscall.h>
#include <unistd.h>

namespace rawduck {

class DeviceEvents {
  public:
    struct Counts {
        uint64_t system_calls = 0, interrupts = 0;
    };

    DeviceEvents() : interrupts_(Interrupts()) {
        std::ifstream number("/sys/kernel/tracing/events/raw_syscalls/sys_enter/id");
        perf_event_attr wanted = {};
        wanted.type = PERF_TYPE_TRACEPOINT;
        wanted.size = sizeof wanted;
        if (!(number >> wanted.config)) {
            throw std::runtime_error(
                "system calls cannot be counted: mount -t tracefs none /sys/kernel/tracing");
        }
        constexpr int THIS_THREAD = 0, ANY_CPU = -1, NO_GROUP = -1;
        fd_ = static_cast<int>(
            syscall(SYS_perf_event_open, &wanted, THIS_THREAD, ANY_CPU, NO_GROUP, PERF_FLAG_FD_CLOEXEC));
        if (fd_ < 0) {
            throw std::runtime_error(std::string("perf_event_open: ") + std::strerror(errno));
        }
    }
    ~DeviceEvents() { close(fd_); }
    DeviceEvents(const DeviceEvents &) = delete;
    DeviceEvents &operator=(const DeviceEvents &) = delete;

    //! Since this was made.
    Counts Count() const {
        Counts counts;
        if (read(fd_, &counts.system_calls, sizeof counts.system_calls) != sizeof counts.system_calls) {
            throw std::runtime_error(std::string("reading a perf event: ") + std::strerror(errno));
        }
        counts.system_calls--; // this read
        counts.interrupts = Interrupts() - interrupts_;
        return counts;
    }

  private:
    //! By the kernel's driver (nvme0q1) and by vfio-pci (vfio-msix[1](0000:00:04.0)), on all processors.
    static uint64_t Interrupts() {
        std::ifstream table("/proc/interrupts");
        std::string line, word;
        uint64_t sum = 0;
        while (std::getline(table, line)) {
            if (line.find("nvme") == std::string::npos && line.find("vfio-msi") == std::string::npos) {
                continue;
            }
            std::istringstream words(line);
            uint64_t count = 0;
            for (words >> word; words >> count;) {
                sum += count;
            }
        }
        return sum;
    }

    const uint64_t interrupts_;
    int fd_ = -1;
};

} // namespace rawduck
