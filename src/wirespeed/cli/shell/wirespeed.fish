# Completion of `wirespeed` in fish. Kept by wirespeed: `wirespeed completion fish`.

function __wirespeed_complete
    set -l token (commandline -ct)
    set -l option (string match -r -- '^-[^=]*=' "$token")
    set -l rest (string replace -- "$option" '' "$token")
    set -l text (commandline -cp | string join ' ')
    for line in (env _WIRESPEED_COMPLETE=fish_complete COMP_LINE="$text" wirespeed 2>/dev/null)
        set -l part (string split -m 2 \t -- $line)
        switch $part[1]
            case plain
                printf '%s\t%s\n' $part[2] $part[3]
            case file
                string replace -r -- '^' "$option" (__fish_complete_path "$rest")
            case dir
                string replace -r -- '^' "$option" (__fish_complete_directories "$rest")
        end
    end
end

complete --command wirespeed --no-files --keep-order --arguments '(__wirespeed_complete)'
