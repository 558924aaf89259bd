#include "volume/tree/page_store.hpp"

#include "common/error.hpp"
#include "common/invariant.hpp"
#include "common/make_room.hpp"
#include "common/memory/aligned_buffer.hpp"

#include <algorithm>
#include <cstring>

namespace rawduck {

namespace {

//! Pages that one request writes.
constexpr size_t WRITE_PAGES = 64;

} // namespace

PageStore::PageStore(BlockIo &io, const Uuid &uuid, PageSpace &space, uint64_t generation,
                     uint64_t cache_bytes)
    : io_(io), uuid_(uuid), space_(space), clean_max_(std::max<uint64_t>(cache_bytes / TREE_PAGE_BYTES, 1)),
      generation_(generation) {}

PageStore::~PageStore() = default;

std::shared_ptr<PageStore::Buffer> PageStore::FindDirty(const PagePointer &place) const {
    for (const Pages *pages : {&dirty_, &frozen_}) {
        const auto found = pages->find(place.unit);
        if (found != pages->end() && found->second->generation == place.generation) {
            return found->second;
        }
    }
    return nullptr;
}

std::shared_ptr<PageStore::Buffer> PageStore::FindClean(const PagePointer &place) {
    std::lock_guard<std::mutex> guard(clean_mutex_);
    const auto found = clean_.find(place.unit);
    if (found == clean_.end() || found->second.buffer->generation != place.generation) {
        return nullptr;
    }
    clean_order_.splice(clean_order_.end(), clean_order_, found->second.order);
    return found->second.buffer;
}

// What a pointer says that can be of no page on the device; empty when there may be one. Pages of the generation that is
// under way are in memory, and are changed there in place.
std::string PageStore::PlaceProblem(const PagePointer &place) const {
    const uint64_t units = io_.CapacityBytes() / ALLOCATION_UNIT_BYTES;
    if (place.unit > units || units - place.unit < TREE_PAGE_UNITS) {
        return "it would lie outside";
    }
    return place.generation < generation_ ? "" : "it would belong to a checkpoint that was never written";
}

void PageStore::ThrowDamaged(const PagePointer &place, const std::string &problem) const {
    throw Error(ErrorCode::CORRUPT, io_.TargetName() + ": metadata page at allocation unit " +
                                        std::to_string(place.unit) + " is damaged (" + problem +
                                        "); `rawduck check` tells what it concerns");
}

void PageStore::RequirePlace(const PagePointer &place) const {
    const std::string problem = FindDirty(place) ? "" : PlaceProblem(place);
    if (!problem.empty()) {
        ThrowDamaged(place, problem);
    }
}

std::shared_ptr<PageStore::Buffer> PageStore::Load(const PagePointer &place, uint16_t level) {
    auto buffer = std::make_shared<Buffer>();
    std::string problem = PlaceProblem(place);
    if (problem.empty()) {
        io_.Read(place.unit * ALLOCATION_UNIT_BYTES, buffer->Bytes(), TREE_PAGE_BYTES);
        problem = std::as_const(*buffer).Page().Problem(uuid_, place, level);
    }
    if (!problem.empty()) {
        ThrowDamaged(place, problem);
    }
    buffer->generation = place.generation;
    KeepClean(place.unit, buffer);
    return buffer;
}

void PageStore::KeepClean(uint64_t unit, const std::shared_ptr<Buffer> &buffer) {
    std::lock_guard<std::mutex> guard(clean_mutex_);
    const auto [entry, is_new] = clean_.try_emplace(unit);
    entry->second.buffer = buffer;
    if (!is_new) {
        clean_order_.splice(clean_order_.end(), clean_order_, entry->second.order);
        return;
    }
    try {
        entry->second.order = clean_order_.insert(clean_order_.end(), unit);
    } catch (...) {
        clean_.erase(entry);
        throw;
    }
    if (clean_.size() > clean_max_) {
        clean_.erase(clean_order_.front());
        clean_order_.pop_front();
    }
}

PageStore::ReadPage PageStore::Read(const PagePointer &place, uint16_t level) {
    RAWDUCK_INVARIANT(place.unit != 0, "there is a page where one is read");
    std::shared_ptr<Buffer> buffer = FindDirty(place);
    buffer = buffer ? buffer : FindClean(place);
    return buffer ? buffer : Load(place, level);
}

void PageStore::Reserve(uint64_t pages) {
    space_.Reserve(pages);
    MakeRoom(spare_, pages);
    while (spare_.size() < pages) {
        Pages one;
        one.emplace(0, std::make_shared<Buffer>());
        spare_.push_back(one.extract(one.begin()));
    }
}

// A page that is not written yet.
TreePage PageStore::AddDirty(PagePointer &place) {
    RAWDUCK_INVARIANT(!spare_.empty(), "pages are reserved before they are made");
    Pages::node_type node = std::move(spare_.back());
    spare_.pop_back();
    place = PagePointer{space_.Take(), generation_};
    node.key() = place.unit;
    node.mapped()->generation = generation_;
    const auto added = dirty_.insert(std::move(node));
    RAWDUCK_INVARIANT(added.inserted, "a place holds one page");
    return added.position->second->Page();
}

TreePage PageStore::Writable(PagePointer &place, uint16_t level) {
    const PagePointer old = place;
    const auto found = old.generation == generation_ ? dirty_.find(old.unit) : dirty_.end();
    if (found != dirty_.end()) {
        return found->second->Page();
    }
    TreePage copy = Copy(place, level); // throws where this generation has no such page
    Drop(old);
    return copy;
}

TreePage PageStore::Copy(PagePointer &place, uint16_t level) {
    const ReadPage page = Read(place, level);
    TreePage copy = AddDirty(place);
    memcpy(dirty_.find(place.unit)->second->Bytes(), page->Bytes(), TREE_PAGE_BYTES);
    return copy;
}

TreePage PageStore::New(PagePointer &place, uint16_t level) {
    TreePage page = AddDirty(place);
    page.Clear(level);
    return page;
}

void PageStore::Drop(const PagePointer &place) noexcept {
    if (place.generation != generation_) {
        space_.Rest(place.unit);
        return;
    }
    const auto removed = dirty_.erase(place.unit);
    RAWDUCK_INVARIANT(removed == 1, "a page of this generation is in memory");
    space_.Give(place.unit);
}

PageStore::Frozen PageStore::Freeze(const std::vector<uint64_t> &old_map_units, uint64_t spare_zones) {
    RAWDUCK_INVARIANT(frozen_.empty(), "one checkpoint is written at a time");
    Frozen frozen;
    // Making room for the map may add a zone to it.
    const uint64_t map_pages = space_.MapBytes(1) / TREE_PAGE_BYTES + 1;
    Reserve(map_pages);
    MakeRoom(frozen.map_units, map_pages);
    std::string room;
    room.reserve(space_.MapBytes());
    // Nothing from here on throws.
    for (uint64_t i = 0; i < map_pages; i++) {
        frozen.map_units.push_back(space_.Take());
    }
    for (const uint64_t unit : old_map_units) {
        space_.Rest(unit);
    }
    frozen.map = space_.Freeze(std::move(room), spare_zones);
    RAWDUCK_INVARIANT(frozen.map.size() <= map_pages * TREE_PAGE_BYTES, "the map fits into its pages");
    frozen.generation = generation_;
    frozen.pages = dirty_.size();
    frozen_.swap(dirty_);
    generation_++;
    return frozen;
}

// Nobody changes the pages, or the set of them, until the caller says that they are durable.
void PageStore::WriteFrozen() {
    AlignedBuffer staged(WRITE_PAGES * TREE_PAGE_BYTES);
    auto next = frozen_.begin();
    while (next != frozen_.end()) {
        Request request;
        request.opcode = Opcode::WRITE;
        for (size_t i = 0; i < WRITE_PAGES && next != frozen_.end(); i++, ++next) {
            char *bytes = staged.Data() + i * TREE_PAGE_BYTES;
            // A copy: others read the page meanwhile.
            memcpy(bytes, next->second->Bytes(), TREE_PAGE_BYTES);
            TreePage(bytes).Seal(uuid_, PagePointer{next->first, next->second->generation});
            request.segments.push_back(
                {next->first * ALLOCATION_UNIT_BYTES, bytes, TREE_PAGE_BYTES, PlacementClass::METADATA});
        }
        io_.Execute(request);
    }
}

void PageStore::FrozenIsDurable() {
    try {
        for (const auto &[unit, buffer] : frozen_) {
            KeepClean(unit, buffer);
        }
    } catch (const std::bad_alloc &) {
        // What is not kept in memory is read again.
    }
    frozen_.clear();
    space_.FrozenIsDurable();
}

uint64_t PageStore::CachedPages() const {
    std::lock_guard<std::mutex> guard(clean_mutex_);
    return clean_.size();
}

} // namespace rawduck
