# Words behind `snakemake`: the targets of the workflow in this folder. Bash: source workflow/completion.bash
# zsh: autoload -U +X bashcompinit && bashcompinit, then the same. Options and files are completed as everywhere.
# (`respath --install-completion` does the same for respath itself, with models and runs.)
_respath_targets() {
    local folder=$PWD
    if [[ -f Snakefile && $folder != "${_respath_folder-}" ]]; then
        # Asked once in each folder and shell: it takes as long as a dry run. Lines are `name (title)`.
        _respath_words=$("${COMP_WORDS[0]}" --list-target-rules 2>/dev/null | sed 's/ .*//')
        _respath_folder=$folder
    fi
    [[ -f Snakefile ]] || _respath_words= _respath_folder=
    COMPREPLY=($(compgen -W "${_respath_words-}" -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _respath_targets snakemake
