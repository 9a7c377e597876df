/* SPDX-License-Identifier: MIT
 *
 * Counts by task and function, without stacks.
 *
 * Each translated block adds its instructions to the tally of its function, inline, and a call if it
 * begins one. A processor has one array of tallies, for whatever task it runs: they are folded into the
 * task's own when another task begins to run.
 */
enum { MOST_SLOTS = 1 << 16 };

struct tally {
    u64 instructions, calls;
};

/* What a task did on a processor in a window, by slot. */
struct tallies {
    u32 window, room;
    struct tally *by_slot;
};

static u64 flat; /* whether stacks are not followed */
static u64 *slot_instructions[MOST_CPUS], *slot_calls[MOST_CPUS];
static u64 folded[MOST_CPUS]; /* instructions that are no longer in the processor's tallies */
static u32 n_slots = 1;       /* slot 0 is of functions without a symbol */
static u32 slots[1 << 19];    /* by a function's number */
static u32 functions[MOST_SLOTS] = {UNNAMED};

static u32 slot_of(u32 func)
{
    if (func == UNNAMED || func >= sizeof slots / sizeof *slots)
        return 0;
    if (!slots[func] && n_slots < MOST_SLOTS) {
        functions[n_slots] = func;
        slots[func] = n_slots++;
    }
    return slots[func];
}

static _Bool make_tallies(void)
{
    for (u32 n = 0; n < MOST_CPUS; n++) {
        slot_instructions[n] = low_memory(2 * MOST_SLOTS * sizeof(u64));
        if (!slot_instructions[n])
            return 0;
        slot_calls[n] = slot_instructions[n] + MOST_SLOTS;
    }
    return 1;
}

static u64 flat_executed(u32 index)
{
    u64 sum = folded[index], *instructions = slot_instructions[index];
    for (u32 n = 0; n < n_slots; n++)
        sum += instructions[n];
    return sum;
}

/* Return a task's tallies of the open window; NULL without memory. */
static struct tallies *tallies_of(struct task *task, u32 index)
{
    if (!task->tallies)
        task->tallies = calloc(MOST_CPUS, sizeof *task->tallies);
    if (!task->tallies)
        return NULL;
    struct tallies *own = &task->tallies[index];
    if (own->room < n_slots) {
        u32 room = (n_slots + 1023) / 1024 * 1024;
        struct tally *more = realloc(own->by_slot, room * sizeof *more);
        if (!more)
            return NULL;
        memset(more + own->room, 0, (room - own->room) * sizeof *more);
        own->by_slot = more;
        own->room = room;
    }
    if (own->window != window)
        memset(own->by_slot, 0, own->room * sizeof *own->by_slot);
    own->window = window;
    return own;
}

/* Move what a processor counted to the task that ran on it; outside of a window, to nobody. */
static void fold(struct task *task, u32 index)
{
    u64 *instructions = slot_instructions[index], *calls = slot_calls[index];
    struct tallies *own = window ? tallies_of(task, index) : NULL;
    if (window && !own)
        lost_nodes++;
    for (u32 n = 0; n < n_slots; n++) {
        if (!instructions[n])
            continue;
        folded[index] += instructions[n];
        if (own) {
            own->by_slot[n].instructions += instructions[n];
            own->by_slot[n].calls += calls[n];
        }
        instructions[n] = calls[n] = 0;
    }
}

/* Make a tree of two levels of each task's tallies, as node_of would with stacks. */
static void make_nodes(struct task *task, u32 index)
{
    struct tallies *own = task->tallies ? &task->tallies[index] : NULL;
    if (!own || own->window != window)
        return;
    task->stamps[index] = window * MOST_CPUS + index;
    task->roots[index] = new_node(task->number, NO_NODE);
    for (u32 n = 0; n < own->room && task->roots[index] != NO_NODE; n++) {
        if (!own->by_slot[n].instructions && !own->by_slot[n].calls)
            continue;
        u32 node = new_node(functions[n], task->roots[index]);
        if (node == NO_NODE) {
            lost_nodes++;
            return;
        }
        nodes[node].instructions = own->by_slot[n].instructions;
        nodes[node].calls = own->by_slot[n].calls;
    }
}
