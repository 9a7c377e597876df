/* SPDX-License-Identifier: MIT
 *
 * The functions of the kernel by address. The kernel's own come from a file that iolab wrote; those
 * of a module are read from the guest's memory when the kernel is about to run its init function.
 */

/* What a function is besides its name; guestprof.symbols has the same numbers. */
enum {
    IS_ENTRY = 1,        /* of an interrupt or exception */
    HAS_ERROR = 2,       /* an exception that pushes an error code */
    IS_FAULT = 4,        /* an exception after which the instruction is executed again */
    IS_SWITCH = 8,       /* __switch_to(prev, next) */
    IS_OPEN = 16,        /* __x64_sys_openat(regs) */
    IS_MODULE = 32,      /* do_init_module(module) */
    IS_EXIT = 64,        /* do_exit(code) */
    IS_DEVICE = 128,     /* reads or writes a device's registers */
    IS_EVENT = 256,      /* its calls are recorded one by one */
    IS_STUBS = 512,      /* many entries side by side under one name */
    IS_START = 1024,     /* where a processor's first stack begins */
    IS_NAME = 2048,      /* __set_task_comm(task, name, exec) */
    IS_USER = 4096,      /* of a program, not of the kernel */
    IS_INTERRUPT = 8192, /* what it calls is done in an interrupt, hard or soft */
    IS_WATCHED = IS_SWITCH | IS_OPEN | IS_MODULE | IS_EXIT | IS_EVENT | IS_NAME,
};

/* Numbers of functions that have no symbol. */
enum { USER = 1, UNNAMED = 2, BROKEN = 3, FIRST_SYMBOL = 16 };

struct symbol {
    u64 start;
    u32 id;
    u32 flags;
};

struct text {
    u64 from, to;
    struct symbol *symbols;
    u32 n;
};

static struct text texts[512];
static u32 n_texts;
static u32 next_id;
static u8 *interrupts; /* by number: whether a function of the kernel is IS_INTERRUPT */
static u32 n_interrupts;
static const struct symbol unnamed = {0, UNNAMED, 0}, user = {0, USER, IS_USER};

/* A program whose functions are known, by its build id. Its addresses count from its base: 0, or
 * wherever the kernel has put it (`moves`). */
static struct program {
    u8 id[24];
    u64 note, from, to, n, moves; /* where the build id is, and its code */
    struct symbol *symbols;
    u8 *code;
    u64 bases[16]; /* where it was found */
    u32 n_bases;
} programs[64];
static u32 n_programs;

/* Return the last symbol that does not begin after an address. */
static const struct symbol *last_before(const struct symbol *symbols, u32 n, u64 address)
{
    u32 low = 0, high = n;
    while (low < high) {
        u32 middle = (low + high) / 2;
        if (symbols[middle].start <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low ? &symbols[low - 1] : NULL;
}

/* Return whether a block has the program's code at an address that counts from its base. */
static _Bool has_code(const struct program *one, const struct tb *tb, u64 address)
{
    u8 code[16];
    for (size_t n = 0; n < qemu_plugin_tb_n_insns(tb); n++) {
        struct insn *insn = qemu_plugin_tb_get_insn(tb, n);
        size_t size = qemu_plugin_insn_data(insn, code, sizeof code);
        if (address + size > one->to || memcmp(code, one->code + (address - one->from), size))
            return 0;
        address += size;
    }
    return 1;
}

/* Return whether a program runs at a base where it was found before. A forked process has the page
 * of the build id only after it has read it: then the code is compared. */
static _Bool is_at(const struct program *one, const struct tb *tb, u64 address, u64 base)
{
    u8 id[20];
    if (address - base < one->from || address - base >= one->to)
        return 0;
    return read_memory(base + one->note, id, sizeof id) ? !memcmp(id, one->id, sizeof id)
                                                        : has_code(one, tb, address - base);
}

/* Find the base of a running program: a page of its code with the block, and the build id where it
 * then must be. The dynamic linker has read that page before the program's first instruction. */
static _Bool find_base(struct program *one, const struct tb *tb, u64 address, u64 *base)
{
    u8 id[20];
    u64 first = (one->from & ~0xfffull) + (address & 0xfff);
    for (u64 at = first; at < one->to; at += 0x1000)
        if (at >= one->from && has_code(one, tb, at) &&
            read_memory(address - at + one->note, id, sizeof id) &&
            !memcmp(id, one->id, sizeof id)) {
            *base = one->bases[one->n_bases++ % (sizeof one->bases / sizeof *one->bases)] =
                address - at;
            return 1;
        }
    return 0;
}

/* Return the function of the running program that a block is of; `user` if it is not known. */
static struct symbol program_symbol_at(const struct tb *tb, u64 address)
{
    for (u32 p = 0; p < n_programs; p++) {
        struct program *one = &programs[p];
        u64 base = 0;
        _Bool there = !one->moves && is_at(one, tb, address, 0);
        for (u32 b = 0; !there && b < one->n_bases && b < sizeof one->bases / sizeof base; b++)
            there = is_at(one, tb, address, base = one->bases[b]);
        if (!there && !(one->moves && find_base(one, tb, address, &base)))
            continue;
        const struct symbol *found = last_before(one->symbols, (u32)one->n, address - base);
        return found ? (struct symbol){base + found->start, found->id, found->flags} : user;
    }
    return user;
}

static const struct symbol *symbol_at(u64 address)
{
    for (u32 t = 0; t < n_texts; t++) {
        struct text *text = &texts[t];
        if (address < text->from || address >= text->to)
            continue;
        const struct symbol *found = last_before(text->symbols, text->n, address);
        return found && found->id ? found : &unnamed;
    }
    return &unnamed;
}

static int by_start(const void *first, const void *second)
{
    const struct symbol *a = first, *b = second;
    return a->start < b->start ? -1 : a->start > b->start ? 1 : (int)a->id - (int)b->id;
}

static _Bool add_text(u64 from, u64 to, struct symbol *symbols, u32 n)
{
    if (n_texts == sizeof texts / sizeof *texts)
        return 0;
    /* A module that was unloaded may have left its range to this one. */
    for (u32 t = 1; t < n_texts; t++)
        if (texts[t].from < to && from < texts[t].to)
            texts[t].from = texts[t].to = 0;
    texts[n_texts++] = (struct text){from, to, symbols, n};
    return 1;
}

static _Bool read_symbols(const char *path)
{
    u64 head[4];
    void *file = fopen(path, "rb");
    if (!file)
        return 0;
    _Bool good = fread(head, sizeof head, 1, file) == 1;
    struct symbol *symbols = good ? calloc(head[0], sizeof *symbols) : NULL;
    good = symbols && fread(symbols, sizeof *symbols, head[0], file) == head[0];
    fclose(file);
    next_id = (u32)head[3];
    n_interrupts = next_id;
    interrupts = good ? calloc(n_interrupts, 1) : NULL;
    good = interrupts != NULL;
    for (u64 n = 0; good && n < head[0]; n++)
        if (symbols[n].flags & IS_INTERRUPT && symbols[n].id < n_interrupts)
            interrupts[symbols[n].id] = 1;
    return good && add_text(head[1], head[2], symbols, (u32)head[0]);
}

static _Bool read_programs(const char *path)
{
    void *file = fopen(path, "rb");
    const size_t head = __builtin_offsetof(struct program, symbols);
    _Bool good = file != NULL;
    while (good && n_programs < sizeof programs / sizeof *programs) {
        struct program *one = &programs[n_programs];
        if (fread(one, head, 1, file) != 1)
            break;
        size_t size = one->to - one->from;
        one->symbols = calloc(one->n + 1, sizeof *one->symbols);
        one->code = calloc(size + 1, 1);
        good = one->symbols && one->code &&
               fread(one->symbols, sizeof *one->symbols, one->n, file) == one->n &&
               fread(one->code, 1, size, file) == size;
        n_programs += good;
    }
    return good && !fclose(file);
}
