# Completion of `wirespeed` in bash 4.4 or later. Kept by wirespeed: `wirespeed completion bash`.

_wirespeed_completion() {
    local program=${1/#\~/$HOME} current=${COMP_WORDS[COMP_CWORD]} type value path
    [[ $current == [=:] ]] && current=
    COMPREPLY=()
    while IFS=$'\t' read -r type value _; do
        case $type in
        plain) COMPREPLY+=("$value") ;;
        file | dir)
            compopt -o filenames 2>/dev/null
            while IFS= read -r path; do
                COMPREPLY+=("$path")
            done < <(compgen -A "${type/dir/directory}" -- "$current")
            ;;
        esac
    done < <(_WIRESPEED_COMPLETE=bash_complete COMP_LINE=${COMP_LINE:0:COMP_POINT} \
        COMP_WORDBREAKS=$COMP_WORDBREAKS "$program" 2>/dev/null)
    # What ends in = wants a value behind it, not a space.
    [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace 2>/dev/null
    return 0
}

complete -o nosort -F _wirespeed_completion wirespeed
