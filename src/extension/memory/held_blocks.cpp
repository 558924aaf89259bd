#include "extension/memory/held_blocks.hpp"

#include "extension/memory/reveal.hpp"

#include "duckdb/catalog/catalog.hpp"
#include "duckdb/main/attached_database.hpp"
#include "duckdb/main/database_manager.hpp"
#include "duckdb/storage/buffer/block_handle.hpp"
#include "duckdb/storage/database_handle.hpp"
#include "duckdb/storage/metadata/metadata_manager.hpp"
#include "duckdb/storage/single_file_block_manager.hpp"
#include "duckdb/storage/storage_manager.hpp"

#include <algorithm>
#include <mutex>
#include <unordered_map>

namespace rawduck {

using duckdb::BlockHandle;
using duckdb::BlockManager;
using duckdb::DatabaseHandle;
using duckdb::DatabaseManager;
using duckdb::SingleFileBlockManager;

struct BlocksTag {
    using Pointer = duckdb::unordered_map<duckdb::block_id_t, duckdb::weak_ptr<BlockHandle>> BlockManager::*;
    friend Pointer MemberOf(BlocksTag);
};
struct BlocksLockTag {
    using Pointer = duckdb::mutex BlockManager::*;
    friend Pointer MemberOf(BlocksLockTag);
};
struct InDestructionTag {
    using Pointer = bool BlockManager::*;
    friend Pointer MemberOf(InDestructionTag);
};
struct DatabaseHandleTag {
    using Pointer = duckdb::unique_ptr<DatabaseHandle> SingleFileBlockManager::*;
    friend Pointer MemberOf(DatabaseHandleTag);
};
struct FileHandleTag {
    using Pointer = duckdb::unique_ptr<duckdb::FileHandle> DatabaseHandle::*;
    friend Pointer MemberOf(FileHandleTag);
};
struct DatabasesTag {
    using Pointer = duckdb::identifier_map_t<duckdb::shared_ptr<duckdb::AttachedDatabase>> DatabaseManager::*;
    friend Pointer MemberOf(DatabasesTag);
};
struct DatabasesLockTag {
    using Pointer = duckdb::mutex DatabaseManager::*;
    friend Pointer MemberOf(DatabasesLockTag);
};
template struct Reveal<BlocksTag, &BlockManager::blocks>;
template struct Reveal<BlocksLockTag, &BlockManager::blocks_lock>;
template struct Reveal<InDestructionTag, &BlockManager::in_destruction>;
template struct Reveal<DatabaseHandleTag, &SingleFileBlockManager::handle>;
template struct Reveal<FileHandleTag, &DatabaseHandle::handle>;
template struct Reveal<DatabasesTag, &DatabaseManager::databases>;
template struct Reveal<DatabasesLockTag, &DatabaseManager::databases_lock>;

duckdb::FileHandle *FileHandleOf(BlockManager &block_manager) {
    auto *const manager = dynamic_cast<SingleFileBlockManager *>(&block_manager);
    if (!manager || !(manager->*MemberOf(DatabaseHandleTag()))) {
        return nullptr;
    }
    return ((manager->*MemberOf(DatabaseHandleTag())).get()->*MemberOf(FileHandleTag())).get();
}

namespace {

//! Null where the database is another, or not in a file of DuckDB's own format.
BlockManager *BlockManagerIn(duckdb::AttachedDatabase &database, const duckdb::FileHandle &file) {
    if (!database.HasStorageManager() || database.GetStorageManager().GetDBPath() != file.path ||
        !database.GetCatalog().IsDuckCatalog()) {
        return nullptr;
    }
    BlockManager &manager = database.GetStorageManager().GetBlockManager();
    return FileHandleOf(manager) == &file ? &manager : nullptr;
}

} // namespace

std::unique_ptr<HeldBlocks> HeldBlocks::Of(BlockManager &block_manager) {
    // Blocks that end later then leave the block manager alone.
    if (!(block_manager.*MemberOf(InDestructionTag()))) {
        return nullptr;
    }
    std::unordered_map<const BlockHandle *, long> listed;
    for (const auto &block : block_manager.GetMetadataManager().GetBlocks()) {
        listed[block.get()]++;
    }
    auto held = std::make_unique<HeldBlocks>();
    bool is_ending = false;
    {
        const std::lock_guard<std::mutex> guard(block_manager.*MemberOf(BlocksLockTag()));
        const auto &blocks = block_manager.*MemberOf(BlocksTag());
        held->blocks_.reserve(blocks.size());
        for (const auto &entry : blocks) {
            auto block = entry.second.lock();
            is_ending = is_ending || !block;
            if (block) {
                const auto found = listed.find(block.get());
                held->blocks_.push_back({std::move(block), 1 + (found == listed.end() ? 0 : found->second)});
            }
        }
    }
    return is_ending ? nullptr : std::move(held);
}

bool HeldBlocks::OthersHaveReleased() {
    const bool released = std::all_of(blocks_.begin(), blocks_.end(), [](const Held &held) {
        return held.block.use_count() <= held.holders;
    });
    // What others did with the blocks before they let go of them comes before what happens now.
    std::atomic_thread_fence(std::memory_order_acquire);
    return released;
}

void BlockManagerOfFile::LookFor(duckdb::DatabaseInstance &instance, const duckdb::FileHandle &file) {
    if (Get() || attempts_.load(std::memory_order_relaxed) >= ATTEMPTS_MAX) {
        return;
    }
    attempts_.fetch_add(1, std::memory_order_relaxed);
    DatabaseManager &manager = DatabaseManager::Get(instance);
    // Not DatabaseManager::GetDatabases: who holds a database hinders its DETACH. And whoever calls this may hold
    // locks of DuckDB's, so no lock is waited for.
    const std::unique_lock<std::mutex> lock(manager.*MemberOf(DatabasesLockTag()), std::try_to_lock);
    if (!lock.owns_lock()) {
        return;
    }
    for (const auto &entry : manager.*MemberOf(DatabasesTag())) {
        if (BlockManager *const found = BlockManagerIn(*entry.second, file)) {
            found_.store(found, std::memory_order_release);
            return;
        }
    }
}

} // namespace rawduck
