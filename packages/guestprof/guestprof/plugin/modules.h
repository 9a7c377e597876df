/* SPDX-License-Identifier: MIT
 *
 * Read a module's functions from the guest's memory, when the kernel is about to run its init
 * function (do_init_module of kernel/module/main.c): by then its symbols have their addresses.
 */
struct elf_symbol {
    u32 name;
    u8 info, other;
    u16 section;
    u64 value, size;
};

static void *names; /* the file of the modules' names */

static _Bool is_text(u64 value, const u64 *range)
{
    return value >= range[0] && value < range[1];
}

/* Return the number of the function that a part of one belongs to: "f.cold" is a part of "f". */
static u32 whole_of(const char *name, const struct elf_symbol *found, const struct symbol *made,
                    u32 n, const char *strings)
{
    const char *dot = strchr(name, '.');
    if (!dot || strncmp(dot, ".cold", 5))
        return 0;
    for (u32 other = 0; other < n; other++) {
        const char *whole = strings + found[other].name;
        if (!strncmp(whole, name, dot - name) && !whole[dot - name])
            return made[other].id;
    }
    return 0;
}

static void add_functions(const char *module, const u64 *range, const struct elf_symbol *found,
                          u32 n, const char *strings, u32 n_strings)
{
    struct symbol *made = calloc(n + 1, sizeof *made);
    struct elf_symbol *kept = calloc(n + 1, sizeof *kept);
    u32 known = 0;
    char line[256];
    for (u32 part = 0; part < 2; part++)
        for (u32 s = 0; s < n; s++) {
            if (!found[s].section || found[s].name >= n_strings || !is_text(found[s].value, range))
                continue;
            const char *name = strings + found[s].name;
            const char *dot = strchr(name, '.');
            if ((dot && !strncmp(dot, ".cold", 5)) != part || !*name || *name == '.' ||
                !strncmp(name, "__pfx_", 6) || !strncmp(name, "__cfi_", 6))
                continue;
            u32 id = part ? whole_of(name, kept, made, known, strings) : 0;
            if (!id) {
                id = next_id++;
                int length = snprintf(line, sizeof line, "%u\t%s\t%s\n", id, module, name);
                fwrite(line, 1, length < 256 ? length : 255, names);
            }
            kept[known] = found[s];
            made[known++] = (struct symbol){found[s].value, id, 0};
        }
    free(kept);
    qsort(made, known, sizeof *made, by_start);
    if (!known || !add_text(range[0], range[1], made, known))
        free(made);
}

static void add_module(u64 module)
{
    char name[56];
    read_string(module + offsets.name, name, sizeof name);
    u64 tables = word_at(module + offsets.kallsyms);
    u64 symbols = word_at(tables + offsets.symtab), strings = word_at(tables + offsets.strtab);
    u32 n = (u32)word_at(tables + offsets.n_symtab);
    if (!tables || !n || n > 1 << 20)
        return;
    struct elf_symbol *found = calloc(n, sizeof *found);
    u32 n_strings = 0;
    if (read_memory(symbols, found, n * sizeof *found))
        for (u32 s = 0; s < n; s++)
            if (found[s].section && found[s].name + 256 > n_strings)
                n_strings = found[s].name + 256;
    char *text = calloc(n_strings + 1, 1);
    /* The last name may end before an unmapped page. */
    for (u32 at = 0; at < n_strings; at += 64)
        if (!read_memory(strings + at, text + at, n_strings - at < 64 ? n_strings - at : 64))
            break;
    /* Without its init functions: their memory is soon freed, and may become a trampoline's. */
    u64 core = word_at(module + offsets.text);
    u64 range[2] = {core, core + (u32)word_at(module + offsets.text_size)};
    add_functions(name, range, found, n, text, n_strings);
    fflush(names);
    free(found);
    free(text);
}
