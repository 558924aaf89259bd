//! DuckDB has one Allocator per instance, whose address is kept in many places and whose functions are private
//! pointers in it. They are replaced while other threads may use them, in an order in which each of them works
//! with what the others were before: first the one that frees, last the one that allocates.
#include "extension/memory/duckdb_allocator.hpp"

#include "common/memory/buffers/buffer_memory.hpp"
#include "extension/memory/reveal.hpp"
#include "target/system/available_memory.hpp"

#include "duckdb/common/allocator.hpp"
#include "duckdb/main/database.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

namespace rawduck {

struct AllocateTag {
    using Pointer = duckdb::allocate_function_ptr_t duckdb::Allocator::*;
    friend Pointer MemberOf(AllocateTag);
};
struct FreeTag {
    using Pointer = duckdb::free_function_ptr_t duckdb::Allocator::*;
    friend Pointer MemberOf(FreeTag);
};
struct ReallocateTag {
    using Pointer = duckdb::reallocate_function_ptr_t duckdb::Allocator::*;
    friend Pointer MemberOf(ReallocateTag);
};
template struct Reveal<AllocateTag, &duckdb::Allocator::allocate_function>;
template struct Reveal<FreeTag, &duckdb::Allocator::free_function>;
template struct Reveal<ReallocateTag, &duckdb::Allocator::reallocate_function>;

namespace {

using DuckAllocator = duckdb::Allocator;
using duckdb::data_ptr_t;
using duckdb::idx_t;
using duckdb::PrivateAllocatorData;

struct Functions {
    duckdb::allocate_function_ptr_t allocate = nullptr;
    duckdb::free_function_ptr_t free = nullptr;
    duckdb::reallocate_function_ptr_t reallocate = nullptr;

    bool operator==(const Functions &other) const {
        return allocate == other.allocate && free == other.free && reallocate == other.reallocate;
    }
};

template <class TAG> auto Load(DuckAllocator &allocator, TAG tag) {
    return __atomic_load_n(&(allocator.*MemberOf(tag)), __ATOMIC_ACQUIRE);
}

template <class TAG, class FUNCTION> void Store(DuckAllocator &allocator, TAG tag, FUNCTION function) {
    __atomic_store_n(&(allocator.*MemberOf(tag)), function, __ATOMIC_SEQ_CST);
}

//! Of DuckDB's own allocators, which all have the same.
Functions host;
BufferMemory *memory = nullptr;

data_ptr_t Allocate(PrivateAllocatorData *data, idx_t size) {
    if (char *const ours = memory->Allocate(size)) {
        return reinterpret_cast<data_ptr_t>(ours);
    }
    return host.allocate(data, size);
}

void Free(PrivateAllocatorData *data, data_ptr_t pointer, idx_t size) {
    if (memory->Owns(pointer)) {
        memory->Free(reinterpret_cast<char *>(pointer));
    } else {
        host.free(data, pointer, size);
    }
}

data_ptr_t Reallocate(PrivateAllocatorData *data, data_ptr_t pointer, idx_t old_size, idx_t size) {
    if (!memory->Owns(pointer)) {
        return host.reallocate(data, pointer, old_size, size);
    }
    const data_ptr_t moved = Allocate(data, size);
    if (moved) {
        std::memcpy(moved, pointer, std::min(old_size, size));
        Free(data, pointer, old_size);
    }
    return moved;
}

Functions FunctionsOf(DuckAllocator &allocator) {
    return {Load(allocator, AllocateTag()), Load(allocator, FreeTag()), Load(allocator, ReallocateTag())};
}

//! As of the level that has least.
uint64_t AvailableBytes() {
    static AvailableMemory &system = *new AvailableMemory; // for a thread that may outlive static objects
    const std::vector<MemoryLevel> levels = system.Read();
    const auto least = std::min_element(levels.begin(), levels.end(), [](const auto &one, const auto &other) {
        return one.available_bytes < other.available_bytes;
    });
    return least == levels.end() ? 0 : least->available_bytes;
}

//! Empty: it can be used.
std::string Obstacle(duckdb::DatabaseInstance &database) {
    static const bool remembered = [&] {
        // Not DuckAllocator::DefaultAllocator(): in the static form that is one of this object's, and the program's
        // DuckDB has another. Nor the allocator of the instance, which may be the program's own.
        host = FunctionsOf(*database.config.default_allocator);
        memory = BufferMemory::OfProcess();
        if (memory) {
            memory->KeepWhatIsAvailable(&AvailableBytes);
        }
        return true;
    }();
    static_cast<void>(remembered);
    if (!memory) {
        return "the system does not give the address space for it (ulimit -v, -d; vm.overcommit_memory)";
    }
    const Functions now = FunctionsOf(DuckAllocator::Get(database));
    const bool is_ours = now.free == Free && now.reallocate == Reallocate;
    return now == host || is_ours ? "" : "this program has given DuckDB an allocator of its own";
}

} // namespace

void UseBufferMemory(duckdb::DatabaseInstance &database, bool on) {
    if (!Obstacle(database).empty()) {
        return;
    }
    DuckAllocator &allocator = DuckAllocator::Get(database);
    if (on) {
        Store(allocator, FreeTag(), &Free);
        Store(allocator, ReallocateTag(), &Reallocate);
    }
    // When it is off, what was allocated here must still be freed here.
    Store(allocator, AllocateTag(), on ? &Allocate : host.allocate);
}

bool UsesBufferMemory(duckdb::DatabaseInstance &database, std::string &why_not) {
    why_not = Obstacle(database);
    if (why_not.empty() && Load(DuckAllocator::Get(database), AllocateTag()) != &Allocate) {
        why_not = "the setting nvme_buffer_memory is off";
    }
    return why_not.empty();
}

} // namespace rawduck
