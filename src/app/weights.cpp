// weights.cpp -- loads weights in floatX, the type that models compute with, and frozen weights (app.h, init.h).
#include "src/app/app.h"
#include "src/app/init.h"

namespace BACKEND {

void load_stored(floatX* weights, const Arena& arena, const Init& init) {
    if (sizeof(floatX) == sizeof(float)) return load_init(reinterpret_cast<float*>(weights), arena, init);
    std::vector<float> masters(arena.n);
    load_init(masters.data(), arena, init);
    store_floats(weights, masters.data(), arena.n);
}

floatX* load_frozen_weights(Comm* comm, const Options& o, Init* init) {
    if (!o.freezes()) return nullptr;
    if (comm->rank == 0 && !init->first) *init = init_of_path(init->folder, nullptr, true);
    init->adapted = false;              // these are this run's trained tensors, which load_init must not add
    const Arena arena = arena_layout(find_model(o.model)->tensors(o.shape));
    const size_t bytes = arena.n * sizeof(floatX);
    floatX* const host = comm_shared<floatX>(comm, arena.n, "frozen weights");
    if (comm->rank == 0) load_stored(host, arena, *init);
    comm_hosts_broadcast(comm, host, bytes);
    comm_barrier(comm);
    if (!kOnGpu) return host;
    floatX* const weights = static_cast<floatX*>(device_alloc(bytes, "frozen weights"));
    copy_to_device(weights, host, bytes);
    stream_sync(nullptr);
    return weights;
}

}  // namespace BACKEND
