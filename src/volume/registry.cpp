#include "volume/registry.hpp"

#include "common/error.hpp"
#include "common/invariant.hpp"
#include "common/process/fork_generation.hpp"
#include "io/device/memory_device.hpp"
#include "io/resolve_volume.hpp"
#include "target/open_target.hpp"
#include "volume/mount/in_use.hpp"

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <sys/stat.h>
#include <thread>

namespace rawduck {

namespace {

//! The states of a volume in this process:
//!
//!   (absent) --PinVolume--> MOUNTING --mounted--> MOUNTED --last pin dropped, idle--> UNMOUNTING -->
//!   (absent)
//!                              `--failed--> (absent)
//!   (absent) --TargetReservation--> RESERVED --its end--> (absent)
//!
//! Mounting and unmounting run without the registry's mutex, because a device that hangs takes long: others
//! wait for it only if they want the same target.
struct Mount {
    enum class State { MOUNTING, MOUNTED, UNMOUNTING, RESERVED } state = State::MOUNTING;
    std::shared_ptr<Volume> volume; //!< while MOUNTED
    uint64_t pins = 0;
};

struct Registry {
    const uint64_t fork_generation = ForkGeneration();
    //! Guards what follows up to stats_mutex. Never held during I/O. Only names_mutex is taken under it
    //! (Volume::Idle).
    std::mutex mutex;
    std::condition_variable changed;      //!< a mount has changed its state
    std::map<std::string, Mount> volumes; //!< by identity
    std::map<const Volume *, std::string> identities;
    //! By the node through which it was mounted, which may be a character device: a name that leads to this
    //! node needs no further lookup.
    std::map<std::string, std::string> identities_by_node;
    std::mutex stats_mutex;                   //!< guards stats; no other lock is taken under it
    std::map<std::string, TargetStats> stats; //!< by identity
};

//! Never destroyed: databases may be closed after main has ended. A forked child starts with an empty one:
//! the parent's volumes, their locks and even the mutex belong to the parent, and the child does not touch
//! its copies.
Registry &GetRegistry() {
    static std::atomic<Registry *> current{new Registry()};
    Registry *registry = current.load(std::memory_order_acquire);
    if (registry->fork_generation != ForkGeneration()) {
        Registry *fresh = new Registry();
        if (current.compare_exchange_strong(registry, fresh)) {
            return *fresh;
        }
        delete fresh;
    }
    return *registry;
}

void AddPin(const Volume *volume) {
    Registry &registry = GetRegistry();
    std::lock_guard<std::mutex> guard(registry.mutex);
    auto identity = registry.identities.find(volume);
    if (identity != registry.identities.end()) {
        registry.volumes[identity->second].pins++;
    }
}

void ForgetNodes(Registry &registry, const std::string &identity) {
    for (auto node = registry.identities_by_node.begin(); node != registry.identities_by_node.end();) {
        node = node->second == identity ? registry.identities_by_node.erase(node) : std::next(node);
    }
}

void DropPin(std::shared_ptr<Volume> volume) {
    Registry &registry = GetRegistry();
    std::string identity;
    std::shared_ptr<Volume> unmounted;
    {
        std::lock_guard<std::mutex> guard(registry.mutex);
        auto known = registry.identities.find(volume.get());
        if (known == registry.identities.end()) {
            return; // inherited through a fork
        }
        identity = known->second;
        Mount &mounted = registry.volumes.at(identity);
        RAWDUCK_INVARIANT(mounted.state == Mount::State::MOUNTED && mounted.pins > 0,
                          "a pinned volume is mounted");
        if (--mounted.pins > 0 || !volume->Idle()) {
            return;
        }
        mounted.state = Mount::State::UNMOUNTING;
        unmounted = std::move(mounted.volume);
        ForgetNodes(registry, identity);
        registry.identities.erase(known);
    }
    // The last reference, and with it the lock on the target, is released before anybody can mount it again.
    volume.reset();
    unmounted.reset();
    std::lock_guard<std::mutex> guard(registry.mutex);
    registry.volumes.erase(identity);
    registry.changed.notify_all();
}

//! Under the mutex. The volume if it is mounted.
VolumePin PinMounted(Registry &registry, const std::string &identity) {
    auto found = registry.volumes.find(identity);
    if (found == registry.volumes.end() || found->second.state != Mount::State::MOUNTED) {
        return VolumePin();
    }
    found->second.pins++;
    return VolumePin(found->second.volume);
}

//! Adds an entry for a target that has none and returns an empty pin. Returns a pin on the volume, and adds
//! nothing, if it is mounted.
VolumePin PinOrInsert(Registry &registry, const std::string &identity, Mount::State state) {
    std::unique_lock<std::mutex> lock(registry.mutex);
    for (;;) {
        if (VolumePin pin = PinMounted(registry, identity)) {
            return pin;
        }
        const auto [entry, is_new] = registry.volumes.emplace(identity, Mount());
        if (is_new) {
            entry->second.state = state;
            return VolumePin();
        }
        registry.changed.wait(lock);
    }
}

//! Of a target that is MOUNTING.
VolumePin FinishMount(Registry &registry, const Target &target, std::shared_ptr<Volume> volume) {
    std::lock_guard<std::mutex> guard(registry.mutex);
    Mount &mount = registry.volumes.at(target.identity);
    registry.identities[volume.get()] = target.identity;
    for (const Target &part : PartsOf(target)) {
        registry.identities_by_node[part.node_identity] = target.identity;
    }
    mount.volume = std::move(volume);
    mount.state = Mount::State::MOUNTED;
    registry.changed.notify_all();
    return PinMounted(registry, target.identity);
}

//! Of a target that is MOUNTING or RESERVED.
void EraseMount(Registry &registry, const std::string &identity) {
    std::lock_guard<std::mutex> guard(registry.mutex);
    registry.volumes.erase(identity);
    registry.changed.notify_all();
}

// DuckDB asks whether a file is there for every block that it has spilled.
// Resolving a target is a dozen system calls, and many more for an NVMe character
// device; this is one. Empty when it does not lead to a mounted volume.
VolumePin PinByNode(const std::string &target_name) {
    struct stat status;
    const bool absolute = !target_name.empty() && target_name[0] == '/';
    if (!absolute || target_name.find('\0') != std::string::npos || stat(target_name.c_str(), &status) != 0) {
        return VolumePin();
    }
    Registry &registry = GetRegistry();
    std::lock_guard<std::mutex> guard(registry.mutex);
    const auto identity = registry.identities_by_node.find(IdentityOf(status));
    return identity == registry.identities_by_node.end() ? VolumePin()
                                                         : PinMounted(registry, identity->second);
}

VolumePin PinTarget(const Target &target, const MountOptions &options) {
    Registry &registry = GetRegistry();
    if (VolumePin pin = PinOrInsert(registry, target.identity, Mount::State::MOUNTING)) {
        return pin;
    }
    try {
        if (target.kind == TargetKind::MEMORY && !MemoryTargetExists(target.path)) {
            Volume::FormatNewMemory(target, options.memory_target_bytes);
        }
        return FinishMount(registry, target,
                           Volume::Mount(target, options, StatsFor(target.identity, target.name)));
    } catch (...) {
        EraseMount(registry, target.identity);
        throw;
    }
}

} // namespace

VolumePin::VolumePin(std::shared_ptr<Volume> volume) : volume_(std::move(volume)) {}

VolumePin::~VolumePin() {
    if (volume_) {
        DropPin(std::move(volume_));
    }
}

VolumePin::VolumePin(const VolumePin &other) : volume_(other.volume_) {
    if (volume_) {
        AddPin(volume_.get());
    }
}

VolumePin::VolumePin(VolumePin &&other) noexcept : volume_(std::move(other.volume_)) {}

VolumePin &VolumePin::operator=(VolumePin other) noexcept {
    std::swap(volume_, other.volume_);
    return *this;
}

VolumePin PinVolume(const std::string &target_name, const MountOptions &options) {
    if (VolumePin pin = PinByNode(target_name)) {
        return pin;
    }
    return UseVolume(target_name, [&](const Target &target) { return PinTarget(target, options); });
}

std::unique_ptr<OpenFile> OpenPinned(VolumePin volume, const std::string &name, const OpenMode &mode) {
    std::unique_ptr<OpenFile> file = volume->Open(name, mode);
    file->KeepAlive(std::make_shared<VolumePin>(std::move(volume)));
    return file;
}

TargetReservation::TargetReservation(const Target &target, const char *done, WhenMounted when_mounted)
    : identity_(target.identity) {
    while (VolumePin mounted = PinOrInsert(GetRegistry(), identity_, Mount::State::RESERVED)) {
        if (when_mounted == WhenMounted::SHARE) {
            mounted_ = std::move(mounted);
            return;
        }
        if (!mounted->Idle()) {
            ThrowInUse(target, done);
        }
        // Only this pin, or a function that is about to end, keeps it mounted.
        mounted = VolumePin();
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
}

TargetReservation::~TargetReservation() {
    if (!mounted_) {
        EraseMount(GetRegistry(), identity_);
    }
}

VolumePin MountedVolume(const std::string &identity) {
    Registry &registry = GetRegistry();
    std::lock_guard<std::mutex> guard(registry.mutex);
    return PinMounted(registry, identity);
}

std::vector<VolumePin> MountedVolumes() {
    Registry &registry = GetRegistry();
    std::lock_guard<std::mutex> guard(registry.mutex);
    std::vector<VolumePin> pins;
    for (auto &[identity, mounted] : registry.volumes) {
        if (VolumePin pin = PinMounted(registry, identity)) {
            pins.push_back(std::move(pin));
        }
    }
    return pins;
}

std::shared_ptr<IoStats> StatsFor(const std::string &identity, const std::string &target_name) {
    Registry &registry = GetRegistry();
    std::lock_guard<std::mutex> guard(registry.stats_mutex);
    TargetStats &entry = registry.stats[identity];
    if (!entry.stats) {
        entry.stats = std::make_shared<IoStats>();
    }
    entry.target = target_name;
    return entry.stats;
}

std::vector<TargetStats> AllStats() {
    Registry &registry = GetRegistry();
    std::lock_guard<std::mutex> guard(registry.stats_mutex);
    std::vector<TargetStats> all;
    for (const auto &[identity, entry] : registry.stats) {
        all.push_back(entry);
    }
    return all;
}

} // namespace rawduck
