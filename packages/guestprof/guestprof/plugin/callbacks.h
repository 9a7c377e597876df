/* SPDX-License-Identifier: MIT
 *
 * What is called while a flat profile is made: at entries of interrupts and exceptions, at functions
 * that say something, and after the guest has read its clock.
 */
static _Bool check_due = 1; /* whether the clock was not compared since a task began to run */

/* To add up all functions takes a microsecond: not at each reading of the clock. */
static void flat_clock(u32 index, u64 address)
{
    _Bool due = check_due && counts[index].clock == address;
    for (u32 n = 0; n < n_cpus; n++)
        due |= counts[n].halted && counts[index].clock == address;
    counts[index].clock = 0;
    if (due) {
        check_due = 0;
        read_clock();
    }
}

static void after_clock(u32 index, void *data)
{
    const struct block *block = data;
    flat_clock(index, block->address);
}

static void flat_entry(u32 index, void *data)
{
    const struct block *block = data;
    u64 address = counts[index].clock || block->flags & IS_FAULT ? interrupted_at(block) : 0;
    if (counts[index].clock)
        flat_clock(index, address);
    u64 not_executed = take_off(index, block, address);
    if (!not_executed)
        return;
    const struct block *last = (const void *)counts[index].block;
    slot_instructions[index][last->slot] -= not_executed;
    /* A function whose first instruction failed begins again. */
    if (last->starts && not_executed == last->n)
        slot_calls[index][last->slot]--;
}

static void flat_watched(u32 index, void *data)
{
    const struct block *block = data;
    if (block->flags & (IS_SWITCH | IS_NAME))
        charge(index);
    if (block->flags & IS_SWITCH)
        check_due = 1;
    watched(index, block);
}
