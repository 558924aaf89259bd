//! Where written data is placed (NVMe Flexible Data Placement): classes of data with similar lifetimes, and
//! which of the device's placement identifiers each of them gets. The volume names the class of a write;
//! everything above an engine speaks of classes, everything below of identifiers.
#pragma once

#include "common/units.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace rawduck {

//! Ordered by how long the data lives, longest first.
enum class PlacementClass : uint8_t {
    DATABASE,  //!< and every other file that is kept
    METADATA,  //!< the volume's own: superblocks, snapshots, log
    WAL,       //!< until the next checkpoint
    TEMPORARY, //!< until the end of a query
};
constexpr size_t PLACEMENT_CLASS_COUNT = 4;
const char *PlacementClassName(PlacementClass placement_class);

//! The identifier of each class, by its number. NONE sends writes of the class without a directive, and the
//! device then uses its first reclaim unit handle.
class PlacementMap {
  public:
    PlacementMap() { ids_.fill(PlacementId::NONE); }
    PlacementId &operator[](PlacementClass placement_class) {
        return ids_[static_cast<size_t>(placement_class)];
    }
    PlacementId operator[](PlacementClass placement_class) const {
        return ids_[static_cast<size_t>(placement_class)];
    }
    //! "database=0, metadata=1, wal=1, temporary=2", without the classes that have none.
    std::string Text() const;

  private:
    std::array<PlacementId, PLACEMENT_CLASS_COUNT> ids_;
};

//! What the user asks for.
struct PlacementRequest {
    enum class Mode { AUTO, OFF, EXPLICIT } mode = Mode::AUTO;
    PlacementMap map; //!< of EXPLICIT
    //! As ParsePlacement takes it.
    std::string Text() const;
};
//! "auto", "off", or pairs such as "database=0,wal=1": Throws Error INVALID that says what is wrong.
PlacementRequest ParsePlacement(const std::string &text);

//! The map for a device with these placement identifiers. AUTO separates the data that lives shortest first:
//! two identifiers separate temporary data, three also logs (WAL and metadata), four or more give each class
//! its own. Throws Error INVALID when the request names an identifier that is not there, UNSUPPORTED when
//! there are none at all because of `obstacle`.
PlacementMap MapPlacement(const PlacementRequest &request, const std::vector<PlacementId> &identifiers,
                          const std::string &obstacle, const std::string &target_name);

} // namespace rawduck
