// The encoder of a bitshift trellis: of all paths through a block, the one whose codewords are nearest to its numbers.
//
// A state is the newest symbol in its low BITS bits and older ones above. All that the next step needs of it is its
// context, the low STATE_BITS - BITS bits; a metric is the least cost (a sum of squares) of a path to a context. Of
// 2^BITS states with one context the best survives; with a tie, the lowest. Two geometries give the same bits, since
// every metric is the least of the same fused multiply-adds: one thread a block, whose loops a compiler makes into
// vectors, and a threadgroup a block, whose threads share out the contexts and wait for each other after every step.

// What a pass is bound to: nothing, or a context that the path begins and ends with (a tail-biting path).
constant constexpr int FREE_ENDS = -1;
// Above every cost; adding squares changes nothing of it.
constant constexpr float OUT_OF_REACH = 1e30f;

template <int BITS, int STATE_BITS, int BLOCK>
struct Trellis {
    static constant constexpr int symbols = 1 << BITS;
    static constant constexpr int contexts = 1 << (STATE_BITS - BITS);
    static constant constexpr int older = contexts >> BITS;  // contexts less the newest symbol
    static constant constexpr int words = BLOCK * BITS / 32;
};

// The path is found last column first, and a block's bit string is in that order: words fill from the lowest bit up.
struct Writer {
    device uint* words;
    ulong waiting;
    uint bits;

    void put(uint symbol, uint width) {
        waiting |= ulong(symbol) << bits;
        bits += width;
        if (bits >= 32u) {
            *words++ = uint(waiting);
            waiting >>= 32;
            bits -= 32u;
        }
    }
};

inline float cost_of(float codeword, float number, float before) {
    float error = codeword - number;
    return fma(error, error, before);
}

// ---- one thread a block: `rows` holds the metrics after every step, [BLOCK + 1][contexts]

template <int BITS, int STATE_BITS, int BLOCK>
inline void step(const device float* book, const device float* by_symbol, const device float* before,
                 device float* after, float number) {
    using Code = Trellis<BITS, STATE_BITS, BLOCK>;
    if (BITS >= 3) {
        // The newest symbol runs innermost: 8 or more codewords next to each other meet one metric.
        for (int older = 0; older < Code::older; ++older) {
            float least[Code::symbols];
            for (int newest = 0; newest < Code::symbols; ++newest) least[newest] = INFINITY;
            for (int oldest = 0; oldest < Code::symbols; ++oldest) {
                float metric = before[oldest * Code::older + older];
                const device float* near = book + oldest * Code::contexts + older * Code::symbols;
#pragma clang loop unroll(full)
                for (int newest = 0; newest < Code::symbols; ++newest) {
                    float cost = cost_of(near[newest], number, metric);
                    least[newest] = cost < least[newest] ? cost : least[newest];
                }
            }
#pragma clang loop unroll(full)
            for (int newest = 0; newest < Code::symbols; ++newest)
                after[older * Code::symbols + newest] = least[newest];
        }
    } else {
        // With so few symbols the older ones have to: `by_symbol` is the codebook in that order.
#pragma clang loop vectorize(assume_safety)
        for (int older = 0; older < Code::older; ++older) {
#pragma clang loop unroll(full)
            for (int newest = 0; newest < Code::symbols; ++newest) {
                float least = INFINITY;
#pragma clang loop unroll(full)
                for (int oldest = 0; oldest < Code::symbols; ++oldest) {
                    float codeword = by_symbol[(oldest * Code::symbols + newest) * Code::older + older];
                    float cost = cost_of(codeword, number, before[oldest * Code::older + older]);
                    least = cost < least ? cost : least;
                }
                after[older * Code::symbols + newest] = least;
            }
        }
    }
}

template <int BITS, int STATE_BITS, int BLOCK>
inline void forward(const device float* numbers, const device float* book, const device float* by_symbol, int turn,
                    int pin, device float* rows) {
    using Code = Trellis<BITS, STATE_BITS, BLOCK>;
    for (int context = 0; context < Code::contexts; ++context)
        rows[context] = pin == FREE_ENDS || pin == context ? 0.0f : OUT_OF_REACH;
    for (int column = 0; column < BLOCK; ++column) {
        device float* before = rows + column * Code::contexts;
        step<BITS, STATE_BITS, BLOCK>(book, by_symbol, before, before + Code::contexts,
                                      numbers[(column + turn) % BLOCK]);
    }
}

template <int BITS, int STATE_BITS, int BLOCK>
inline int first_least(const device float* metrics) {
    int least = 0;
    for (int context = 1; context < Trellis<BITS, STATE_BITS, BLOCK>::contexts; ++context)
        if (metrics[context] < metrics[least]) least = context;
    return least;
}

// Follows the path that ends in `context`, and returns the context that it has before column `stop`. `fit`: the sums of
// codeword times number and of codeword squared on the way, from which the best scale of the block follows.
template <int BITS, int STATE_BITS, int BLOCK>
inline int back(const device float* numbers, const device float* book, int turn, int context, int stop,
                const device float* rows, device uint* out, device float* fit) {
    using Code = Trellis<BITS, STATE_BITS, BLOCK>;
    Writer writer = {out, 0, 0};
    float product = 0, square = 0;
    for (int column = BLOCK - 1; column >= stop; --column) {
        const device float* before = rows + column * Code::contexts;
        float number = numbers[(column + turn) % BLOCK], least = INFINITY;
        int state = context;
        for (int oldest = 0; oldest < Code::symbols; ++oldest) {
            int candidate = oldest * Code::contexts + context;
            // The same sum as in the step, so the least one is the metric itself.
            float cost = cost_of(book[candidate], number, before[candidate >> BITS]);
            if (cost < least) {
                least = cost;
                state = candidate;
            }
        }
        writer.put(uint(state) & uint(Code::symbols - 1), uint(BITS));
        product = fma(book[state], number, product);
        square = fma(book[state], book[state], square);
        context = state >> BITS;
    }
    fit[0] = product;
    fit[1] = square;
    return context;
}

template <int BITS, int STATE_BITS, int BLOCK, int PASSES>
inline void encode_alone(const device float* numbers, const device float* book, const device float* by_symbol,
                         device float* rows, device uint* out, device float* costs, device float* fit) {
    using Code = Trellis<BITS, STATE_BITS, BLOCK>;
    const device float* ends = rows + BLOCK * Code::contexts;
    int pin = FREE_ENDS;
    if (PASSES == 2) {
        // Turned by half, the seam lies in the middle: what passes there is a good guess.
        forward<BITS, STATE_BITS, BLOCK>(numbers, book, by_symbol, BLOCK / 2, FREE_ENDS, rows);
        int end = first_least<BITS, STATE_BITS, BLOCK>(ends);
        pin = back<BITS, STATE_BITS, BLOCK>(numbers, book, BLOCK / 2, end, BLOCK - BLOCK / 2, rows, out, fit);
    } else if (PASSES == 0) {
        float least = INFINITY;
        for (int context = 0; context < Code::contexts; ++context) {
            forward<BITS, STATE_BITS, BLOCK>(numbers, book, by_symbol, 0, context, rows);
            if (ends[context] < least) {
                least = ends[context];
                pin = context;
            }
        }
    }
    forward<BITS, STATE_BITS, BLOCK>(numbers, book, by_symbol, 0, pin, rows);
    int end = pin == FREE_ENDS ? first_least<BITS, STATE_BITS, BLOCK>(ends) : pin;
    *costs = ends[end];
    back<BITS, STATE_BITS, BLOCK>(numbers, book, 0, end, 0, rows, out, fit);
}

// ---- a threadgroup a block: two rows of metrics, and the oldest symbol of every survivor, [BLOCK][contexts]

template <int BITS, int STATE_BITS, int BLOCK, int THREADS, bool SHARED>
struct Group {
    using Code = Trellis<BITS, STATE_BITS, BLOCK>;
    static constant constexpr int each = Code::contexts / THREADS;
    static constant constexpr bool keeps_codewords = each * Code::symbols <= 32;

    threadgroup float* near_metrics;  // 32 KiB hold two rows of up to 2048 contexts;
    device float* far_metrics;        // more go to device memory
    device uchar* survivors;
    threadgroup float* least_metric;  // [THREADS]
    threadgroup int* least_context;   // [THREADS]
    int thread_index;

    float metric(int row, int context) const {
        return SHARED ? near_metrics[row * Code::contexts + context] : far_metrics[row * Code::contexts + context];
    }

    void set_metric(int row, int context, float value) {
        if (SHARED)
            near_metrics[row * Code::contexts + context] = value;
        else
            far_metrics[row * Code::contexts + context] = value;
    }

    // Returns the row that holds the metrics after the last column.
    int forward(const device float* numbers, const device float* book, int turn, int pin) {
        float codewords[keeps_codewords ? each * Code::symbols : 1];
        if (keeps_codewords) {
            for (int own = 0; own < each; ++own)
                for (int oldest = 0; oldest < Code::symbols; ++oldest)
                    codewords[own * Code::symbols + oldest] =
                        book[oldest * Code::contexts + own * THREADS + thread_index];
        }
        for (int context = thread_index; context < Code::contexts; context += THREADS)
            set_metric(0, context, pin == FREE_ENDS || pin == context ? 0.0f : OUT_OF_REACH);
        threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
        for (int column = 0; column < BLOCK; ++column) {
            float number = numbers[(column + turn) % BLOCK];
            for (int own = 0; own < each; ++own) {
                int context = own * THREADS + thread_index;
                float least = INFINITY;
                int survivor = 0;
                for (int oldest = 0; oldest < Code::symbols; ++oldest) {
                    int state = oldest * Code::contexts + context;
                    float codeword = keeps_codewords ? codewords[own * Code::symbols + oldest] : book[state];
                    float cost = cost_of(codeword, number, metric(column & 1, state >> BITS));
                    if (cost < least) {
                        least = cost;
                        survivor = oldest;
                    }
                }
                set_metric(column + 1 & 1, context, least);
                survivors[column * Code::contexts + context] = uchar(survivor);
            }
            threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
        }
        return BLOCK & 1;
    }

    // The first context with the least metric, for all threads; a tree, since one thread would be waited for.
    int first_least(int row) {
        float least = metric(row, thread_index);
        int found = thread_index;
        for (int context = thread_index + THREADS; context < Code::contexts; context += THREADS) {
            if (metric(row, context) < least) {
                least = metric(row, context);
                found = context;
            }
        }
        least_metric[thread_index] = least;
        least_context[thread_index] = found;
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (int half_way = THREADS / 2; half_way > 0; half_way /= 2) {
            if (thread_index < half_way) {
                float other = least_metric[thread_index + half_way];
                int theirs = least_context[thread_index + half_way];
                if (other < least || (other == least && theirs < found)) {
                    least = other;
                    found = theirs;
                    least_metric[thread_index] = least;
                    least_context[thread_index] = found;
                }
            }
            threadgroup_barrier(mem_flags::mem_threadgroup);
        }
        int first = least_context[0];
        threadgroup_barrier(mem_flags::mem_threadgroup);
        return first;
    }

    // As for one thread, and the answer is for all threads.
    int back(const device float* numbers, const device float* book, int turn, int context, int stop, device uint* out,
             device float* fit) {
        if (thread_index == 0) {
            Writer writer = {out, 0, 0};
            float product = 0, square = 0;
            for (int column = BLOCK - 1; column >= stop; --column) {
                int state = int(survivors[column * Code::contexts + context]) * Code::contexts + context;
                writer.put(uint(state) & uint(Code::symbols - 1), uint(BITS));
                product = fma(book[state], numbers[(column + turn) % BLOCK], product);
                square = fma(book[state], book[state], square);
                context = state >> BITS;
            }
            fit[0] = product;
            fit[1] = square;
            least_context[0] = context;
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        int found = least_context[0];
        threadgroup_barrier(mem_flags::mem_threadgroup);
        return found;
    }

    template <int PASSES>
    void encode(const device float* numbers, const device float* book, device uint* out, device float* costs,
                device float* fit) {
        int pin = FREE_ENDS;
        if (PASSES == 2) {
            int row = forward(numbers, book, BLOCK / 2, FREE_ENDS);
            pin = back(numbers, book, BLOCK / 2, first_least(row), BLOCK - BLOCK / 2, out, fit);
        } else if (PASSES == 0) {
            float least = INFINITY;
            for (int context = 0; context < Code::contexts; ++context) {
                int row = forward(numbers, book, 0, context);
                float cost = metric(row, context);
                if (cost < least) {
                    least = cost;
                    pin = context;
                }
                threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
            }
        }
        int row = forward(numbers, book, 0, pin);
        int end = pin == FREE_ENDS ? first_least(row) : pin;
        if (thread_index == 0) *costs = metric(row, end);
        back(numbers, book, 0, end, 0, out, fit);
    }
};
